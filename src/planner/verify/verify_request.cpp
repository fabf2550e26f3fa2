#include "planner/verify/verify_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dapple/plan/pins.h"
#include "dapple/planner/parallelism/asked_parallelisms.h"
#include "dapple/planner/request/planner_options.h"
#include "planner/candidates/as_pinned.h"
#include "planner/request/gradient_synchronizations.h"

namespace dapple::planner {
namespace {

void check_pinned_layers(Claims& claims, const ClaimedPlan& claimed) {
  const Pins& pins = claimed.document.request->pins;
  const auto layers = static_cast<std::int32_t>(claimed.document.profile.layers.size());
  const std::pair<const char*, const std::vector<std::int32_t>&> lists[] = {
      {"cuts", pins.cuts}, {"joints", pins.joints}};
  for (const auto& [name, list] : lists) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i] < layers) continue;
      claims.refuse(
          fmt::format("/request/pins/{}/{}", name, i),
          fmt::format("expected the number of a layer, 1 to {}, got {}", layers - 1, list[i]));
    }
  }
}

void check_pinned(Claims& claims, const ClaimedPlan& claimed) {
  const Plan& plan = claimed.document.plan;
  const Pins& pins = claimed.document.request->pins;
  check_pinned_layers(claims, claimed);
  if (pins.least_depths && claimed.document.request->family != ScheduleFamily::OneFOneB) {
    claims.refuse("/request/pins/least_depths",
                  "expected false, as the schedule is not 1f1b, got "
                  "true");
  }
  if (!claims.empty()) return;
  // The pins of a plan with several chunks applied to its groups of devices.
  if (plan.chunks_per_device > 1 || is_as_pinned(plan, pins)) return;
  claims.refuse("/request/pins",
                fmt::format("expected pins that the plan keeps, got {}",
                            fmt::join(to_texts(pins, claimed.document.profile), ", ")));
}

/// Checks that the target runtime can run the plan.
void check_target(Claims& claims, const ClaimedPlan& claimed) {
  const PlanRequest& request = *claimed.document.request;
  if (request.target.empty()) return;
  const Plan& plan = claimed.document.plan;
  if (request.target == kExecutorTarget) {
    std::string lack = lack_of_executor(plan.parallelism, claimed.document.original_profile());
    for (const Parallelism& form : plan.stage_forms) {
      if (lack.empty()) lack = lack_of_executor(form, claimed.document.original_profile());
      if (!lack.empty() || executor_mixes(claimed.document.profile, plan.parallelism, form))
        continue;
      lack = "dapple-exec has no stages that share parameters and divide them differently";
    }
    if (lack.empty()) return;
    claims.refuse("/request/for", "expected a runtime that can run the plan, but " + lack);
    return;
  }
  if (request.mixes_forms) {
    claims.refuse("/request/per_stage",
                  "expected no such key with a target other than dapple-exec, got true");
    return;
  }
  const PlanRestriction restriction =
      *restriction_for(claimed.restriction, claimed.document.plan.parallelism);
  bool is_cut_otherwise = false;
  Pins pins;
  pins.replicas = static_cast<std::int32_t>(plan.stages.front().devices.size());
  pins.recompute = plan.stages.front().recompute;
  pins.equal_shares = true;
  pins.replicas_in_group = plan.parallelism.replicas_in_group();
  pins.in_order = restriction.in_order;
  pins.least_depths = restriction.least_depths && plan.family == ScheduleFamily::OneFOneB;
  if (plan.chunks_per_device == 1) pins.joints = restriction.joints;
  if (restriction.own_boundaries != nullptr) {
    const auto boundaries =
        restriction.own_boundaries(claimed.document.profile, std::ssize(plan.stages));
    is_cut_otherwise = !boundaries || std::ssize(*boundaries) + 1 != std::ssize(plan.stages);
    if (boundaries) pins.cuts = *boundaries;
    if (restriction.needs_filled_pipeline) pins.least_micro_batches = std::ssize(plan.stages) - 1;
  }
  const bool recomputes_wrongly = *pins.recompute && !restriction.recomputes;
  if (is_as_pinned(plan, pins) && !is_cut_otherwise && !recomputes_wrongly) return;
  claims.refuse("/request/for", fmt::format("expected a runtime that can run the plan, got \"{}\"",
                                            request.target));
}

void check_sharding(Claims& claims, const ClaimedPlan& claimed) {
  const Sharding asked = claimed.document.request->sharding;
  const Sharding chosen = sharding_of(claimed.document.plan.parallelism);
  if (asked == Sharding::Any || asked == chosen) return;
  claims.refuse("/request/sharding", fmt::format("expected {}, as in the plan, got {}",
                                                 to_string(chosen), to_string(asked)));
}

/// Checks that only a search for them has found shares that are not equal.
void check_shares(Claims& claims, const ClaimedPlan& claimed) {
  const std::vector<StagePlan>& stages = claimed.document.plan.stages;
  const bool are_equal = std::all_of(stages.begin(), stages.end(),
                                     [](const StagePlan& stage) { return stage.samples.empty(); });
  if (are_equal || claimed.document.request->shares != Shares::Equal) return;
  claims.refuse("/request/shares",
                "expected auto, as a stage of the plan has unequal shares, got equal");
}

/// Checks that only a search for them has found stages that deal their micro-batches.
void check_replication(Claims& claims, const ClaimedPlan& claimed) {
  const bool deals = deals_micro_batches(claimed.document.plan);
  if (!deals || claimed.document.request->replications != Replications::Split) return;
  claims.refuse("/request/replication",
                "expected auto, as a stage of the plan deals micro-batches, got split");
}

void check_gradients(Claims& claims, const ClaimedPlan& claimed) {
  const PlanDocument& document = claimed.document;
  const GradientSynchronization& gradients = document.plan.gradients;
  const PlanRequest& request = *document.request;
  const auto overlap = [](bool overlaps) { return overlaps ? "buckets" : "none"; };
  claims.expect_text("/request/gradient_overlap", overlap(gradients.overlaps),
                     overlap(request.overlaps_gradients));
  claims.expect_text("/request/optimizer_step", to_string(gradients.optimizer),
                     to_string(request.optimizer));
  if (request.bucket_size) {
    claims.expect("/request/bucket_bytes", gradients.bucket_size, *request.bucket_size);
    return;
  }
  const auto synchronizations = gradient_synchronizations(
      options_of(request, document.plan.global_batch_size), document.profile);
  const bool is_tried =
      gradients == usual_gradients(options_of(request, document.plan.global_batch_size)) ||
      std::any_of(synchronizations.begin(), synchronizations.end(),
                  [&](const GradientSynchronization& handling) {
                    return handling.bucket_size == gradients.bucket_size;
                  });
  if (is_tried) return;
  claims.refuse("/request/bucket_bytes",
                fmt::format("expected {}, as no search of several sizes tries that, got null",
                            gradients.bucket_size.count));
}

void check_schedule(Claims& claims, const ClaimedPlan& claimed) {
  const PlanDocument& document = claimed.document;
  const PlanRequest& request = *document.request;
  if (request.family) {
    const bool is_asked_for =
        document.plan.family == *request.family || (*request.family == ScheduleFamily::OneFOneB &&
                                                    document.plan.family == ScheduleFamily::GPipe);
    if (!is_asked_for) {
      claims.expect_text("/request/schedule", to_string(document.plan.family),
                         to_string(*request.family));
    }
  }
  const bool is_beyond = !request.family || !is_planned_as_1f1b(*request.family);
  if (is_beyond && request.mode.replicas == Replicas::Independent) {
    claims.refuse("/request/replicas",
                  "expected together, as with every schedule beyond 1f1b and "
                  "gpipe, got independent");
  }
  if (request.family && !is_planned_as_1f1b(*request.family) &&
      request.planner == PlannerKind::Dapple) {
    claims.refuse("/request/planner",
                  fmt::format("expected exact, the only planner of {}, got dapple",
                              to_string(*request.family)));
  }
  if (request.planner == PlannerKind::Dapple && request.target_gap.billionths > 0) {
    claims.refuse("/request/target_gap", "expected 0, as dapple proves no gap, got more");
  }
}

void check_memory(Claims& claims, const ClaimedPlan& claimed) {
  if (claimed.document.request->ignore_memory) return;
  for (const DeviceFigures& device : claimed.document.prediction.devices) {
    if (!lacks_memory(device)) continue;
    claims.refuse("/request/unlimited_memory",
                  fmt::format("expected true, as {} lacks memory, got false",
                              claimed.topology.device(device.device).name));
    return;
  }
}

/// Whether collectives share links in the plan as the request says, where its groups are on several
/// servers.
void check_collectives(Claims& claims, const ClaimedPlan& claimed) {
  const Contention found = claimed.document.prediction.contention;
  const Contention asked = claimed.document.request->mode.contention;
  if (!shares_links(asked) || !shares_links(found)) return;
  const Contention expected = suited_to(claimed.topology.description(), asked);
  if (found == expected) return;
  claims.refuse("/request/collectives", found == Contention::SharedWithCollectives
                                            ? "expected \"shared\", as predicted, got none"
                                            : "expected none, as predicted, got \"shared\"");
}

}  // namespace

void check_request(Claims& claims, const ClaimedPlan& claimed) {
  const PlanDocument& document = claimed.document;
  const PlanRequest& request = *document.request;
  if (request.micro_batch_size) {
    claims.expect("/request/micro_batch_size", document.plan.micro_batch_size,
                  *request.micro_batch_size);
  }
  claims.expect_text("/request/contention", to_string(document.prediction.contention),
                     to_string(request.mode.contention));
  check_collectives(claims, claimed);
  claims.expect_text("/request/replicas", to_string(document.prediction.replicas),
                     to_string(request.mode.replicas));
  claims.expect_text("/request/transfers", to_string(document.prediction.transfers),
                     to_string(request.mode.transfers));
  check_schedule(claims, claimed);
  check_sharding(claims, claimed);
  check_shares(claims, claimed);
  check_replication(claims, claimed);
  check_gradients(claims, claimed);
  check_memory(claims, claimed);
  if (claims.empty()) check_pinned(claims, claimed);
  if (claims.empty()) check_target(claims, claimed);
}

}  // namespace dapple::planner
