#include "dapple/plan/deciding_measurement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "dapple/profile/parallelism.h"

namespace dapple {
namespace {

/// Returns the most samples that a device computes at a time.
std::int64_t most_samples(const Plan& plan) {
  const std::int64_t ranks = plan.parallelism.replicas_in_group();
  std::int64_t most = 0;
  for (const StagePlan& stage : plan.stages) {
    for (std::size_t i = 0; i < stage.devices.size(); ++i) {
      most = std::max(most, divide_up(samples_of(plan, stage, i).size(), ranks));
    }
  }
  return most;
}

bool recomputes_alike(const Plan& a, const Plan& b) {
  return std::equal(a.stages.begin(), a.stages.end(), b.stages.begin(), b.stages.end(),
                    [](const StagePlan& one, const StagePlan& other) {
                      return one.recompute == other.recompute;
                    });
}

/// Returns what has to be measured of two forms that differ in one respect; empty if they differ in
/// several, or in none.
std::string measurement_of_forms(Parallelism a, Parallelism b) {
  // It follows from the other degrees and from the number of devices.
  a.group_replicas = b.group_replicas = 1;
  const auto differ_only_in = [&](auto... members) {
    Parallelism same = b;
    ((same.*members = a.*members), ...);
    return a != b && same == a;
  };
  if (differ_only_in(&Parallelism::tensor, &Parallelism::sequence) && a.tensor != b.tensor) {
    return fmt::format("layers and their collectives with tensor {} and {}", a.tensor, b.tensor);
  }
  if (differ_only_in(&Parallelism::context)) {
    return fmt::format("layers and their collectives with context {} and {}", a.context, b.context);
  }
  if (differ_only_in(&Parallelism::experts, &Parallelism::expert_tensor) &&
      a.experts != b.experts) {
    return fmt::format("layers and their all-to-alls with experts {} and {}", a.experts, b.experts);
  }
  if (differ_only_in(&Parallelism::shards_optimizer, &Parallelism::optimizer_shards,
                     &Parallelism::full_shards)) {
    if (a.full_shards > 1 && b.full_shards > 1) {
      return fmt::format("gathers of parameters and reductions of gradients over {} and {} devices",
                         a.full_shards, b.full_shards);
    }
    return "gathers of parameters and reductions of gradients with the sharding of each plan";
  }
  if (differ_only_in(&Parallelism::recomputes, &Parallelism::recomputed_layers)) {
    return "backwards of layers with the recomputation of each plan";
  }
  return "";
}

}  // namespace

bool are_within_error(Duration a, Duration b, Factor error) {
  const auto [faster, slower] = std::minmax(a, b);
  return Wide{(slower - faster).ns} * kOne.billionths <= Wide{faster.ns} * error.billionths;
}

std::string deciding_measurement(const Plan& plan, const Plan& other) {
  constexpr const char* kBothPlans = "an iteration of each plan";
  const bool have_one_form = plan.stage_forms.empty() && other.stage_forms.empty();
  const bool are_alike = plan.stages.size() == other.stages.size() && plan.family == other.family &&
                         recomputes_alike(plan, other);
  if (!have_one_form || !are_alike) return kBothPlans;
  const std::string measurement = measurement_of_forms(plan.parallelism, other.parallelism);
  if (measurement.empty()) return kBothPlans;
  const std::int64_t samples = most_samples(plan);
  const std::int64_t others = most_samples(other);
  if (samples == others) return measurement;
  return fmt::format("{}, at batches of {} and {}", measurement, samples, others);
}

}  // namespace dapple
