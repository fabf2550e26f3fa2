// Plans for a runtime that can do less: what is proven of them where a search is stopped.
#include "dapple/planner/restricted/restricted.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <variant>
#include <vector>

#include "../../../support/impatient.h"
#include "../../../support/pipeline.h"

namespace dapple::planner {
namespace {

struct Found {
  Duration iteration;
  Duration lower_bound;
};

/// What a search ends with; it may end with nothing only where it is stopped.
std::optional<Found> search(const PlannerOptions& options, const PlanRestriction& restriction,
                            Progress* progress) {
  static const ModelProfile profile = small::model_of(std::vector<small::LayerFigures>(
      6, {.forward = 10, .backward = 20, .output = 5, .parameters = 100}));
  static const Topology topology(small::cluster({.servers = 2, .devices = 2}));
  const auto made = make_restricted_plan({profile, topology, options, progress}, restriction);
  if (const auto* infeasible = std::get_if<Infeasible>(&made)) {
    CHECK(infeasible->stopped);
    return std::nullopt;
  }
  const Prediction& prediction = std::get<MadePlan>(made).document.prediction;
  REQUIRE(prediction.lower_bound.has_value());
  return Found{prediction.iteration, *prediction.lower_bound};
}

/// Whether the devices of the stages stand in the order of their numbers.
bool is_in_order(const Plan& plan) {
  std::vector<DeviceIndex> devices;
  for (const StagePlan& stage : plan.stages) {
    devices.insert(devices.end(), stage.devices.begin(), stage.devices.end());
  }
  return std::is_sorted(devices.begin(), devices.end());
}

TEST_CASE("where a launcher numbers devices, the best plan in that order is found and proven") {
  // Three servers of a device each, the one in the middle with a NIC of a tenth: a pipeline in
  // order crosses it twice, one that may choose only once.
  const ModelProfile profile = small::model_of(std::vector<small::LayerFigures>(
      6, {.forward = 100, .backward = 200, .output = 400, .parameters = 1}));
  TopologyDescription description = small::cluster({.servers = 3});
  ServerGroup group = description.servers.front();
  group.count = 1;
  description.servers.assign(3, group);
  const char* names[] = {"a", "b", "c"};
  for (std::size_t i = 0; i < 3; ++i) description.servers[i].name = names[i];
  description.servers[1].nics.front().link.bandwidth.bytes_per_second /= 10;
  const Topology topology(description);
  PlannerOptions options;
  options.global_batch_size = 6;
  options.micro_batch_size = 1;
  options.pins.stages = 3;
  PlanRestriction restriction{.runtime = "some runtime"};
  const auto plan_for = [&] {
    const auto made = make_restricted_plan({profile, topology, options}, restriction);
    return std::get<MadePlan>(made).document;
  };
  const PlanDocument free = plan_for();
  restriction.in_order = true;
  for (const PlannerKind planner : {PlannerKind::Exact, PlannerKind::Dapple}) {
    options.planner = planner;
    const PlanDocument bound = plan_for();
    CHECK(is_in_order(bound.plan));
    CHECK(bound.prediction.iteration > free.prediction.iteration);
    if (planner == PlannerKind::Dapple) continue;
    CHECK(bound.prediction.lower_bound == bound.prediction.iteration);
    // Every split and every depth in that order, one after the other.
    Duration best{INT64_MAX};
    for (std::int32_t first = 1; first < 5; ++first) {
      for (std::int32_t second = first + 1; second < 6; ++second) {
        for (const bool recompute : {false, true}) {
          Plan plan = bound.plan;
          const std::int32_t cuts[] = {0, first, second, 6};
          for (std::int32_t s = 0; s < 3; ++s) {
            StagePlan& stage = plan.stages[static_cast<std::size_t>(s)];
            stage.layers = {cuts[s], cuts[s + 1]};
            stage.recompute = recompute;
            stage.devices = {DeviceIndex{s}};
            stage.gradient_buckets.clear();
          }
          for (std::int64_t a = 1; a <= 6; ++a) {
            for (std::int64_t b = 1; b <= a; ++b) {
              for (std::int64_t c = 1; c <= b; ++c) {
                plan.warmup_depths = {a, b, c};
                Plan tried = plan;
                const Evaluation evaluation = evaluate(tried, profile, topology, {});
                if (evaluation.shortages.empty()) {
                  best = std::min(best, evaluation.prediction.iteration);
                }
              }
            }
          }
        }
      }
    }
    CHECK(best == bound.prediction.iteration);
  }
}

TEST_CASE("a restricted search that is stopped has a plan with a bound that is below every plan") {
  PlannerOptions options;
  options.global_batch_size = 8;
  PlanRestriction restriction{.runtime = "some runtime"};
  for (const bool every_family : {false, true}) {
    options.every_family = every_family;
    if (every_family) {
      restriction.families = {ScheduleFamily::OneFOneB, ScheduleFamily::Interleaved,
                              ScheduleFamily::ZeroBubbleH1};
    }
    const std::optional<Found> whole = search(options, restriction, nullptr);
    REQUIRE(whole);
    int found = 0;
    for (int patience = 1; patience < 4'000; patience = patience * 3 / 2 + 1) {
      CAPTURE(every_family, patience);
      small::Impatient progress(patience);
      const std::optional<Found> part = search(options, restriction, &progress);
      if (!part) continue;
      ++found;
      CHECK(part->lower_bound > Duration{});
      CHECK(part->lower_bound <= whole->iteration);
      CHECK(part->iteration >= whole->lower_bound);
    }
    CHECK(found > 3);
  }
}

TEST_CASE("that no plan of one family fits is no claim about another one, which may fit") {
  // A device has room for a large layer, of 2,000 bytes, and two little ones, of 200 each: so two
  // stages on each fit, but no split that is even in time, and never one stage on each.
  const small::LayerFigures large{.forward = 1, .backward = 1, .output = 1, .parameters = 1'000};
  const small::LayerFigures little{.forward = 50, .backward = 50, .output = 1, .parameters = 100};
  const ModelProfile profile = small::model_of({large, large, little, little, little});
  TopologyDescription description = small::cluster({.devices = 2});
  description.devices.front().memory = {2'500};
  const Topology topology(description);
  PlannerOptions options;
  options.global_batch_size = 2;
  options.micro_batch_size = 1;
  options.every_family = true;
  options.baselines = false;
  PlanRestriction restriction{.runtime = "some runtime"};
  restriction.families = {ScheduleFamily::OneFOneB, ScheduleFamily::Interleaved};
  const auto made = make_restricted_plan({profile, topology, options}, restriction);
  REQUIRE(std::holds_alternative<Infeasible>(made));
  CHECK_FALSE(std::get<Infeasible>(made).is_certain);
  CHECK(std::get<Infeasible>(made).lower_bound > Duration{});
  Plan plan{.global_batch_size = 2,
            .micro_batch_size = 1,
            .num_micro_batches = 2,
            .family = ScheduleFamily::Interleaved,
            .warmup_depths = {},
            .chunks_per_device = 2,
            .stages = std::vector<StagePlan>(4)};
  for (std::int32_t s = 0; s < 4; ++s) {
    StagePlan& stage = plan.stages[static_cast<std::size_t>(s)];
    stage.layers = {s, s < 3 ? s + 1 : 5};
    stage.devices = {DeviceIndex{s % 2}};
  }
  fill_depths(plan);
  const Evaluation evaluation = evaluate(plan, profile, topology, {});
  CHECK(evaluation.shortages.empty());
  CHECK(std::get<Infeasible>(made).lower_bound <= evaluation.prediction.iteration);
}

TEST_CASE("that no plan of some parts fits is no claim about those that a stop left out") {
  // Each of two devices has room for the first layer, of 5,000 bytes, or for all others, of 1,000
  // each, but for what these stash of four micro-batches only if they recompute.
  std::vector<small::LayerFigures> figures(
      6, {.forward = 10, .backward = 20, .output = 1, .parameters = 100, .stash = 20});
  figures.front().parameters = 500;
  ModelProfile profile = small::model_of(figures);
  profile.optimizer.state_bytes_per_parameter_byte = {8 * kOne.billionths};
  TopologyDescription description = small::cluster({.devices = 2});
  description.devices.front().memory = {5'500};
  const Topology topology(description);
  PlannerOptions options;
  options.global_batch_size = 8;
  options.micro_batch_size = 2;
  options.family = ScheduleFamily::GPipe;
  options.planner = PlannerKind::Dapple;
  options.baselines = false;
  options.pins.replicas = 1;
  const PlanRestriction restriction{.runtime = "some runtime"};
  int stopped = 0;
  int planned = 0;
  for (int patience = 0; patience < 100; ++patience) {
    CAPTURE(patience);
    small::Impatient progress(patience);
    const auto made = make_restricted_plan({profile, topology, options, &progress}, restriction);
    const auto* const none = std::get_if<Infeasible>(&made);
    if (none != nullptr) CHECK(none->stopped);
    ++(none != nullptr ? stopped : planned);
  }
  CHECK(stopped > 0);
  CHECK(planned > 0);
}

}  // namespace
}  // namespace dapple::planner
