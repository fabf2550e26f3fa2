#include "dapple/planner/verify/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "dapple/cost/buckets.h"
#include "dapple/plan/optimality.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/planner/candidates/jitter.h"
#include "dapple/planner/request/planner_options.h"
#include "planner/verify/claims.h"
#include "planner/verify/repeated_search.h"
#include "planner/verify/verify_baselines.h"
#include "planner/verify/verify_bound.h"
#include "planner/verify/verify_record.h"
#include "planner/verify/verify_request.h"
#include "planner/verify/verify_unsearched.h"

namespace dapple::planner {
namespace {

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

/// Checks that the baselines are consistent with each other and with the bound; their plans are not
/// in the file.
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

/// Checks that the records of schedule families are consistent with the plan and its bound; the
/// best plans of the families are not in the file.
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
    const Duration fastest = fastest_found(document);
    const Duration iteration = record.iteration.value_or(fastest);
    if (record.family == recorded_family(document.plan.family)) {
      claims.expect(place + "/iteration_ns", fastest, iteration);
    } else if (iteration < fastest) {
      claims.refuse(
          place + "/iteration_ns",
          fmt::format("expected at least the plan's own {}, got {}", fastest.ns, iteration.ns));
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

/// Checks that the stated bound, gap and completeness are consistent with each other.
void check_certificate(Claims& claims, const PlanDocument& document) {
  const Prediction& claimed = document.prediction;
  const SearchRecord& search = document.search;
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
  const Duration fastest = std::min(claimed.iteration, fastest_found(document));
  if (*claimed.lower_bound > fastest) {
    claims.refuse(bound_place, fmt::format("expected at most the iteration of {}, got {}",
                                           fastest.ns, claimed.lower_bound->ns));
    return;
  }
  if (!claimed.optimality_gap) {
    claims.refuse(gap_place, "expected a gap, as there is a bound, got null");
    return;
  }
  claims.expect(gap_place, optimality_gap(claimed.iteration, *claimed.lower_bound),
                *claimed.optimality_gap);
}

/// Checks how the iteration varies with the speeds of devices, and that the plan is as close to the
/// fastest one as a plan that was chosen for that must be.
void check_jitter(Claims& claims, const PlanDocument& document, const Topology& topology,
                  const Evaluation& fresh) {
  if (!document.request || !document.request->jitter) return;
  const JitterRequest& asked = *document.request->jitter;
  const PlannerOptions options = options_of(*document.request, document.plan.global_batch_size);
  const JitterFigures now =
      jitter_of(fresh, topology, document.prediction.mode(), asked, options.threads);
  const JitterFigures& then = *document.prediction.jitter;
  const std::string place = "/predicted/jitter";
  claims.expect(place + "/median_ns", now.median, then.median);
  claims.expect(place + "/percentile_95_ns", now.ninety_fifth, then.ninety_fifth);
  claims.expect(place + "/draws", now.draws, then.draws);
  for (std::size_t s = 0; s < now.with_slow_device.size(); ++s) {
    claims.expect(fmt::format("{}/slow_device_ns/{}", place, s), now.with_slow_device[s],
                  then.with_slow_device[s]);
  }
  const Duration fastest = fastest_found(document);
  const Duration iteration = document.prediction.iteration;
  if (fastest <= iteration && iteration <= slowest_choice(fastest, asked)) return;
  claims.refuse("/search_space/fastest_ns",
                fmt::format("expected at most the iteration of {}, and no less than lets the plan "
                            "be slower by /request/jitter/deviation at most, got {}",
                            iteration.ns, fastest.ns));
}

/// Checks that the gradient buckets follow from the bucket size that the file states.
void check_buckets(Claims& claims, const PlanDocument& document) {
  Plan plan = document.plan;
  for (StagePlan& stage : plan.stages) stage.gradient_buckets.clear();
  fill_gradient_buckets(plan, document.profile);
  const auto counts = [](const std::vector<Bytes>& buckets) {
    std::string text;
    for (const Bytes bucket : buckets)
      text += fmt::format("{}{}", text.empty() ? "" : ", ", bucket.count);
    return "[" + text + "]";
  };
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const std::vector<Bytes>& expected = plan.stages[s].gradient_buckets;
    const std::vector<Bytes>& claimed = document.plan.stages[s].gradient_buckets;
    if (expected == claimed) continue;
    claims.refuse(fmt::format("/stages/{}/costs/gradient_buckets_bytes", s),
                  fmt::format("expected {}, closed at /gradients/bucket_bytes, got {}",
                              counts(expected), counts(claimed)));
  }
}

void check_figures(Claims& claims, const PlanDocument& document, const Topology& topology) {
  Plan plan = document.plan;
  const SimulationMode mode = document.prediction.mode();
  const Evaluation evaluation = evaluate(plan, document.profile, topology, mode);
  const Prediction& fresh = evaluation.prediction;
  check_buckets(claims, document);
  check_stages(claims, fresh, document.prediction);
  check_prediction(claims, fresh, document.prediction);
  check_devices(claims, topology, fresh, document.prediction);
  check_jitter(claims, document, topology, evaluation);
  check_certificate(claims, document);
  check_baselines(claims, document);
  check_schedules(claims, document);
}

}  // namespace

PlanVerification verify(const PlanDocument& document, const Topology& topology,
                        const VerifyOptions& options, Progress* progress) {
  Claims claims;
  PlanVerification verification;
  const ClaimedPlan claimed{document, topology, options.restriction};
  check_figures(claims, document, topology);
  const bool is_asked = document.request.has_value();
  if (claims.empty() && is_asked) check_request(claims, claimed);
  if (claims.empty()) {
    if (is_asked) {
      check_search(claims, claimed);
    } else if (!check_unsearched(claims, claimed, verification.unchecked)) {
      check_unasked(claims, claimed);
      verification.unchecked.push_back({UncheckedKind::WhatWasNotAsked});
    }
  }
  if (claims.empty() && is_asked) {
    check_baselines_anew(claims, claimed, progress, verification.unchecked);
  }
  if (claims.empty()) derive_bound(claims, claimed, options, progress, verification);
  if (claims.empty() && verification.proof_faults.empty() && is_asked) {
    repeat_search(claims, claimed, options, progress, verification);
  }
  verification.violations = claims.take();
  return verification;
}

}  // namespace dapple::planner
