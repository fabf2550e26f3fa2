#include "dapple/planner/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "dapple/planner/planner.h"
#include "exhaustive.h"

namespace dapple {
namespace {

/// Collects what is claimed otherwise than it is.
class Claims {
 public:
  template <class Figure>
  void expect(const std::string& place, const Figure& expected, const Figure& claimed) {
    if (claimed == expected) return;
    refuse(place, fmt::format("expected {}, got {}", expected, claimed));
  }
  void expect(const std::string& place, Duration expected, Duration claimed) {
    expect(place, expected.ns, claimed.ns);
  }
  void expect(const std::string& place, Bytes expected, Bytes claimed) {
    expect(place, expected.count, claimed.count);
  }
  void refuse(const std::string& place, std::string message) {
    violations_.push_back({place, std::move(message)});
  }
  std::vector<Violation> take() { return std::move(violations_); }

 private:
  std::vector<Violation> violations_;
};

void check_stages(Claims& claims, const Prediction& fresh, const Prediction& claimed) {
  for (std::size_t s = 0; s < fresh.stages.size(); ++s) {
    const StageFigures& now = fresh.stages[s];
    const StageFigures& then = claimed.stages[s];
    const std::string place = fmt::format("/stages/{}/costs", s);
    claims.expect(place + "/forward_ns", now.forward, then.forward);
    claims.expect(place + "/backward_ns", now.backward, then.backward);
    claims.expect(place + "/send_bytes", now.send, then.send);
    claims.expect(place + "/all_reduce_ns", now.all_reduce, then.all_reduce);
    claims.expect(place + "/optimizer_step_ns", now.optimizer_step, then.optimizer_step);
  }
}

void check_devices(Claims& claims, const Topology& topology, const Prediction& fresh,
                   const Prediction& claimed) {
  const auto name = [&](const DeviceFigures& figures) {
    return topology.device(figures.device).name;
  };
  if (fresh.devices.size() != claimed.devices.size()) {
    claims.refuse("/predicted/devices",
                  fmt::format("expected the {} devices that the plan uses, got {}",
                              fresh.devices.size(), claimed.devices.size()));
    return;
  }
  for (std::size_t i = 0; i < fresh.devices.size(); ++i) {
    const DeviceFigures& now = fresh.devices[i];
    const DeviceFigures& then = claimed.devices[i];
    const std::string place = fmt::format("/predicted/devices/{}", i);
    claims.expect(place + "/device", name(now), name(then));
    claims.expect(place + "/peak_memory_bytes", now.peak_memory, then.peak_memory);
    claims.expect(place + "/memory_limit_bytes", now.memory_limit, then.memory_limit);
    claims.expect(place + "/busy_fraction", now.busy_fraction, then.busy_fraction);
  }
}

void check_prediction(Claims& claims, const Prediction& fresh, const Prediction& claimed) {
  claims.expect("/predicted/iteration_ns", fresh.iteration, claimed.iteration);
  claims.expect("/predicted/samples_per_second", fresh.samples_per_second,
                claimed.samples_per_second);
  if (claimed.speedup_over_one_device) {
    claims.expect("/predicted/speedup_over_one_device", *fresh.speedup_over_one_device,
                  *claimed.speedup_over_one_device);
  }
  claims.expect("/predicted/bubble_fraction", fresh.bubble_fraction, claimed.bubble_fraction);
  claims.expect("/predicted/exposed_transfer_ns", fresh.exposed_transfer, claimed.exposed_transfer);
  claims.expect("/predicted/exposed_all_reduce_ns", fresh.exposed_all_reduce,
                claimed.exposed_all_reduce);
  for (const TimePart& part : kTimeParts) {
    claims.expect(fmt::format("/predicted/time_parts/{}", part.key), fresh.parts.*part.part,
                  claimed.parts.*part.part);
  }
}

/// Baselines against themselves and the bound: their plans are not in the file.
void check_baselines(Claims& claims, const PlanDocument& document) {
  for (std::size_t i = 0; i < document.baselines.size(); ++i) {
    const Baseline& baseline = document.baselines[i];
    const std::string place = fmt::format("/baselines/{}", i);
    for (std::size_t other = 0; other < i; ++other) {
      if (document.baselines[other].name != baseline.name) continue;
      claims.refuse(place + "/name",
                    fmt::format("expected a name of its own, got \"{}\" again", baseline.name));
    }
    claims.expect(place + "/feasible", baseline.missing.count == 0, baseline.feasible);
    if (baseline.parts.total() != baseline.iteration) {
      claims.refuse(place + "/time_parts",
                    fmt::format("expected parts of an iteration of {}, got {} together",
                                baseline.iteration.ns, baseline.parts.total().ns));
    }
    const std::optional<Duration>& bound = document.prediction.lower_bound;
    if (!document.search.complete || !bound || !baseline.feasible) continue;
    if (baseline.iteration >= *bound) continue;
    claims.refuse(place + "/iteration_ns", fmt::format("expected at least the bound of {}, got {}",
                                                       bound->ns, baseline.iteration.ns));
  }
}

/// Schedule families against the plan and its bound: their best plans are not in the file.
void check_schedules(Claims& claims, const PlanDocument& document) {
  const std::optional<Duration>& bound = document.prediction.lower_bound;
  for (std::size_t i = 0; i < document.schedules.size(); ++i) {
    const ScheduleRecord& record = document.schedules[i];
    const std::string place = fmt::format("/schedules/{}", i);
    for (std::size_t other = 0; other < i; ++other) {
      if (document.schedules[other].family != record.family) continue;
      claims.refuse(place + "/family", fmt::format("expected a family of its own, got \"{}\" again",
                                                   to_string(record.family)));
    }
    const Duration iteration = record.iteration.value_or(document.prediction.iteration);
    if (record.family == document.plan.family) {
      claims.expect(place + "/iteration_ns", document.prediction.iteration, iteration);
    } else if (iteration < document.prediction.iteration) {
      claims.refuse(place + "/iteration_ns",
                    fmt::format("expected at least the plan's own {}, got {}",
                                document.prediction.iteration.ns, iteration.ns));
    }
    if (record.iteration && record.missing.count > 0) {
      claims.expect(place + "/missing_bytes", Bytes{}, record.missing);
    }
    if (record.lower_bound && record.iteration && *record.lower_bound > *record.iteration) {
      claims.refuse(place + "/lower_bound_ns",
                    fmt::format("expected at most the iteration of {}, got {}",
                                record.iteration->ns, record.lower_bound->ns));
    }
    if (bound && record.lower_bound && *bound > *record.lower_bound) {
      claims.refuse("/predicted/lower_bound_ns",
                    fmt::format("expected at most that of {} of {}, got {}",
                                to_string(record.family), record.lower_bound->ns, bound->ns));
    }
  }
}

/// Bound, gap and completeness against each other, as the file has them.
void check_certificate(Claims& claims, const Prediction& claimed, const SearchRecord& search) {
  const std::string bound_place = "/predicted/lower_bound_ns";
  const std::string gap_place = "/predicted/optimality_gap";
  if (search.complete && !search.cut.empty()) {
    claims.refuse("/search_space/complete",
                  fmt::format("expected false, as /search_space/cut names {} part{} left out, got "
                              "true",
                              search.cut.size(), search.cut.size() == 1 ? "" : "s"));
  }
  if (!claimed.lower_bound) {
    if (search.complete) {
      claims.refuse(bound_place,
                    "expected a bound, as the search is said to be complete, got null");
    }
    if (claimed.optimality_gap) {
      claims.refuse(gap_place, fmt::format("expected null, as there is no bound, got {}",
                                           *claimed.optimality_gap));
    }
    return;
  }
  if (*claimed.lower_bound > claimed.iteration) {
    claims.refuse(bound_place, fmt::format("expected at most the iteration of {}, got {}",
                                           claimed.iteration.ns, claimed.lower_bound->ns));
    return;
  }
  if (!claimed.optimality_gap) {
    claims.refuse(gap_place, "expected a gap, as there is a bound, got null");
    return;
  }
  claims.expect(gap_place, optimality_gap(claimed.iteration, *claimed.lower_bound),
                *claimed.optimality_gap);
}

std::string shape_of(const Plan& plan, const Topology& topology) {
  std::string stages;
  for (const StagePlan& stage : plan.stages) {
    std::string devices;
    for (const DeviceIndex device : stage.devices) {
      devices += (devices.empty() ? "" : " ") + topology.device(device).name;
    }
    stages += fmt::format("; layers [{}, {}) on {}{}", stage.layers.begin, stage.layers.end,
                          devices, stage.recompute ? " with recomputation" : "");
  }
  return fmt::format("micro-batches of {}, depths {}{}", plan.micro_batch_size,
                     fmt::join(plan.warmup_depths, " "), stages);
}

void derive_bound(Claims& claims, const PlanDocument& document, const Topology& topology,
                  std::int64_t budget, Progress* progress, Verification& verification) {
  const Prediction& claimed = document.prediction;
  if (!claimed.lower_bound) return;
  if (!document.search.complete) {
    verification.bound = BoundCheck::NotComplete;
    return;
  }
  const auto lacks_memory = [](const DeviceFigures& device) {
    return device.peak_memory > device.memory_limit;
  };
  const bool has_families = !document.schedules.empty();
  const ExhaustiveOutcome outcome = search_exhaustively(
      document.profile, topology,
      {.global_batch_size = document.plan.global_batch_size,
       .gradients = document.plan.gradients,
       .family = has_families ? ScheduleFamily::OneFOneB : document.plan.family,
       .mode = {claimed.contention, claimed.replicas},
       .ignore_memory = std::any_of(claimed.devices.begin(), claimed.devices.end(), lacks_memory),
       .below = *claimed.lower_bound,
       .budget = budget},
      progress);
  verification.partial_plans = outcome.partial_plans;
  verification.simulated = outcome.simulated;
  verification.bound = !outcome.is_through ? BoundCheck::TooLarge
                       : has_families      ? BoundCheck::HoldsOf1F1B
                                           : BoundCheck::Holds;
  if (!outcome.faster) return;
  verification.bound = BoundCheck::Refuted;
  claims.refuse(
      "/predicted/lower_bound_ns",
      fmt::format("expected at most {}, which a plan takes ({}), got {}", outcome.iteration.ns,
                  shape_of(*outcome.faster, topology), claimed.lower_bound->ns));
}

}  // namespace

Verification verify(const PlanDocument& document, const Topology& topology, std::int64_t budget,
                    Progress* progress) {
  Claims claims;
  Verification verification;
  Plan plan = document.plan;
  const SimulationMode mode{document.prediction.contention, document.prediction.replicas};
  const Prediction fresh = evaluate(plan, document.profile, topology, mode).prediction;
  check_stages(claims, fresh, document.prediction);
  check_prediction(claims, fresh, document.prediction);
  check_devices(claims, topology, fresh, document.prediction);
  check_certificate(claims, document.prediction, document.search);
  check_baselines(claims, document);
  check_schedules(claims, document);
  derive_bound(claims, document, topology, budget, progress, verification);
  verification.violations = claims.take();
  return verification;
}

}  // namespace dapple
