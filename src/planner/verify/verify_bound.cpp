#include "planner/verify/verify_bound.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "dapple/cost/compatible.h"
#include "dapple/planner/parallelism/plan_parallelisms.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/profile/variants.h"
#include "dapple/search/families/family_bound.h"
#include "planner/families/searched_order.h"
#include "planner/request/gradient_synchronizations.h"
#include "planner/request/micro_batches.h"
#include "planner/verify/exhaustive.h"

namespace dapple::planner {
namespace {

/// The fraction 1/n of the budget for the search for a bound between the one from the work and the
/// stated one.
constexpr std::int64_t kPartOfRaising = 5;
constexpr Duration kNoBound{std::int64_t{1} << 60};

/// Returns the options of the request; without a request, those that follow from the plan and its
/// figures.
PlannerOptions options_of_claim(const PlanDocument& document) {
  if (document.request) return options_of(*document.request, document.plan.global_batch_size);
  const Prediction& claimed = document.prediction;
  PlannerOptions options{
      .global_batch_size = document.plan.global_batch_size,
      .bucket_size = document.plan.gradients.bucket_size,
      .optimizer = document.plan.gradients.optimizer,
      .overlaps_gradients = document.plan.gradients.overlaps,
      .family = document.plan.family,
      .every_family = !document.schedules.empty(),
      .contention = claimed.contention,
      .replicas = claimed.replicas,
      .transfers = claimed.transfers,
      .ignore_memory = std::any_of(claimed.devices.begin(), claimed.devices.end(), lacks_memory)};
  if (options.every_family || options.family == ScheduleFamily::OneFOneB) options.family.reset();
  return options;
}

/// Returns the lower bound on every plan of a family that follows from its work, without a search:
/// (F5), (F6)-(F7) or, for independent replicas, (F8).
Duration least_work(const ClaimedPlan& claimed, const PlannerOptions& options,
                    ScheduleFamily family) {
  const CostModel costs(claimed.document.profile, claimed.topology);
  const bool loops = has_loops(family);
  Duration least = kNoBound;
  for (const std::int64_t size : micro_batch_sizes(options).sizes) {
    search::FamilyBound bound(costs, {.global_batch_size = options.global_batch_size,
                                      .micro_batch_size = size,
                                      .split_backward = may_split_backward(family),
                                      .optimizer = options.optimizer,
                                      .ignore_memory = options.ignore_memory || loops});
    if (options.replicas == Replicas::Independent) {
      least = std::min(least, bound.of_work(least));
    } else {
      least = std::min(least, loops ? bound.of_loops(least) : bound.of_pipelines(least));
    }
  }
  return least;
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

class BoundDerivation {
 public:
  BoundDerivation(const ClaimedPlan& claimed, const VerifyOptions& options, Progress* progress,
                  PlanVerification& verification)
      : claimed_(claimed),
        budget_(options.budget),
        progress_(progress),
        verification_(verification),
        options_(options_of_claim(claimed.document)) {}

  void run(Claims& claims);

 private:
  bool looks_at(ScheduleFamily family) const;
  Duration of_pipelines(Duration stated, Claims& claims);
  ExhaustiveOutcome go_through(Duration below, std::int64_t budget);
  Duration raise_between(Duration proven, Duration stated);

  const ClaimedPlan claimed_;
  std::int64_t budget_;
  Progress* progress_;
  PlanVerification& verification_;
  PlannerOptions options_;
};

/// Whether the request covers the family. GPipe counts as 1F1B with all micro-batches in flight.
bool BoundDerivation::looks_at(ScheduleFamily family) const {
  if (family == ScheduleFamily::Given || family == ScheduleFamily::GPipe) return false;
  const bool is_1f1b = family == ScheduleFamily::OneFOneB;
  if (!options_.every_family) {
    if (is_1f1b) return !options_.family || *options_.family == ScheduleFamily::GPipe;
    return options_.family == family;
  }
  if (!claimed_.restriction) return true;
  const auto& families = claimed_.restriction->families;
  return std::find(families.begin(), families.end(), family) != families.end();
}

ExhaustiveOutcome BoundDerivation::go_through(Duration below, std::int64_t budget) {
  const PlanDocument& document = claimed_.document;
  ExhaustiveProblem problem{.global_batch_size = options_.global_batch_size,
                            .micro_batch_sizes = micro_batch_sizes(options_).sizes,
                            .gradients = gradient_synchronizations(options_, document.profile),
                            .family = options_.family.value_or(ScheduleFamily::OneFOneB),
                            .mode = options_.mode(),
                            .ignore_memory = options_.ignore_memory,
                            .pins = options_.pins,
                            .below = below,
                            .budget = budget};
  if (claimed_.restriction) {
    const PlanRestriction& restriction = *claimed_.restriction;
    problem.are_stages_alike = true;
    problem.may_recompute = restriction.recomputes;
    problem.pins.in_order = restriction.in_order;
    problem.pins.least_depths = problem.pins.least_depths || restriction.least_depths;
    for (const std::int32_t joint : restriction.joints) problem.pins.joints.push_back(joint);
    std::sort(problem.pins.joints.begin(), problem.pins.joints.end());
  }
  ExhaustiveOutcome outcome =
      search_exhaustively(document.profile, claimed_.topology, problem, progress_);
  verification_.partial_plans += outcome.partial_plans;
  verification_.simulated += outcome.simulated;
  verification_.is_stopped = verification_.is_stopped || outcome.is_stopped;
  return outcome;
}

/// Tries to prove the time half way from what is proven to the stated bound, where the budget does
/// not suffice to prove the stated bound: fewer partial plans are below a lower time.
Duration BoundDerivation::raise_between(Duration proven, Duration stated) {
  const Duration half = proven + Duration{(stated - proven).ns / 2};
  if (half <= proven) return proven;
  const ExhaustiveOutcome outcome = go_through(half, budget_ / kPartOfRaising);
  return outcome.is_through && !outcome.faster ? half : proven;
}

/// Returns the proven bound of plans under 1F1B and GPipe.
Duration BoundDerivation::of_pipelines(Duration stated, Claims& claims) {
  const ScheduleFamily family = ScheduleFamily::OneFOneB;
  const Duration of_work = least_work(claimed_, options_, family);
  // Otherwise the file does not say for which part of the space its bound holds.
  const bool is_space_known =
      claimed_.document.request.has_value() || claimed_.document.search.complete;
  if (of_work >= stated || !is_space_known) return of_work;
  const ExhaustiveOutcome outcome = go_through(stated, budget_ - budget_ / kPartOfRaising);
  if (outcome.faster) {
    verification_.bound = BoundCheck::Refuted;
    claims.refuse(
        "/predicted/lower_bound_ns",
        fmt::format("expected at most {}, which a plan takes ({}), got {}", outcome.iteration.ns,
                    shape_of(*outcome.faster, claimed_.topology), stated.ns));
    return of_work;
  }
  if (outcome.is_through) verification_.proof = BoundProof::Exhaustion;
  return outcome.is_through ? stated : raise_between(of_work, stated);
}

void BoundDerivation::run(Claims& claims) {
  const PlanDocument& document = claimed_.document;
  const Duration stated = *document.prediction.lower_bound;
  Duration proven = kNoBound;
  for (const ScheduleFamily family : kScheduleFamilies) {
    if (!looks_at(family)) continue;
    const bool is_1f1b = family == ScheduleFamily::OneFOneB;
    const Duration least =
        is_1f1b ? of_pipelines(stated, claims) : least_work(claimed_, options_, family);
    if (verification_.bound == BoundCheck::Refuted) return;
    proven = std::min(proven, least);
  }
  // The plan itself is in the space.
  verification_.proven = std::min(proven, document.prediction.iteration);
  verification_.bound = verification_.proven >= stated ? BoundCheck::Proven : BoundCheck::NotProven;
}

/// Returns the work of the busiest replica, a lower bound on every order of the plan's stages.
/// Backwards count in one piece, which is no longer than their two parts.
Duration work_in_any_order(const Plan& plan, const PlanCost& costs) {
  Duration most;
  for (const std::vector<StageIndex>& group : stages_by_device_group(plan)) {
    const StagePlan& first = plan.stages[group.front().position()];
    for (std::size_t r = 0; r < first.devices.size(); ++r) {
      Duration work;
      for (const StageIndex stage : group) {
        const ReplicaCost& replica = costs.stages[stage.position()].replicas[r];
        work += micro_batches_of(plan, first, r) * (replica.forward + replica.backward);
      }
      most = std::max(most, work);
    }
  }
  return most;
}

/// Derives the bound of a rescheduled plan, of which only the order was free, from the work of its
/// busiest device, or from the bound on orders where that takes at most a second.
void derive_bound_of_orders(const ClaimedPlan& claimed, PlanVerification& verification) {
  constexpr std::int64_t kMostWork = 2'000'000;  // stages squared times micro-batches
  const PlanDocument& document = claimed.document;
  const Plan& plan = document.plan;
  const Duration stated = *document.prediction.lower_bound;
  const CostModel costs(document.profile, claimed.topology);
  verification.proven = work_in_any_order(plan, costs.plan_cost(plan));
  const auto stages = static_cast<std::int64_t>(plan.stages.size());
  const bool is_searched = searches_order(plan.family) && !deals_micro_batches(plan);
  if (verification.proven < stated && is_searched &&
      plan.num_micro_batches <= kMostWork / (stages * stages)) {
    const SimulationMode mode = document.prediction.mode();
    const std::optional<Duration> bound = bound_of_orders(plan, costs, mode);
    if (bound && *bound > verification.proven) {
      verification.proven = *bound;
      verification.proof = BoundProof::Orders;
    }
  }
  verification.bound = verification.proven >= stated ? BoundCheck::Proven : BoundCheck::NotProven;
}

/// Derives the bound for every form of parallelism that was asked for. What is proven of all of
/// them is the least of what is proven of each.
void derive_bound_of_parallelisms(Claims& claims, const ClaimedPlan& claimed,
                                  const VerifyOptions& options, Progress* progress,
                                  PlanVerification& verification) {
  const PlanDocument& document = claimed.document;
  const Topology topology{document.original_topology()};
  const PlannerOptions asked = options_of(*document.request, document.plan.global_batch_size);
  Duration proven = kNoBound;
  bool is_proven = true;
  BoundProof proof = BoundProof::LeastWork;
  for (AskedParallelism& form :
       asked_parallelisms({document.original_profile(), topology, asked}, claimed.restriction)) {
    auto* inputs = std::get_if<PlanInputs>(&form.inputs);
    if (inputs == nullptr) continue;
    const Topology of_form{inputs->topology};
    if (!check_compatible(inputs->profile, of_form, document.plan.global_batch_size).empty()) {
      continue;
    }
    PlanDocument of_others = document;
    of_others.profile = std::move(inputs->profile);
    of_others.topology = std::move(inputs->topology);
    verification.proof = BoundProof::LeastWork;
    const auto restriction = restriction_for(claimed.restriction, form.parallelism);
    BoundDerivation({of_others, of_form, restriction}, options, progress, verification).run(claims);
    if (verification.bound == BoundCheck::Refuted) return;
    is_proven = is_proven && verification.bound == BoundCheck::Proven;
    proven = std::min(proven, verification.proven);
    proof = std::max(proof, verification.proof);
  }
  verification.proven = std::min(proven, document.prediction.iteration);
  verification.bound = is_proven ? BoundCheck::Proven : BoundCheck::NotProven;
  verification.proof = proof;
}

}  // namespace

void derive_bound(Claims& claims, const ClaimedPlan& claimed, const VerifyOptions& options,
                  Progress* progress, PlanVerification& verification) {
  const PlanDocument& document = claimed.document;
  if (!document.prediction.lower_bound) return;
  if (document.search.planner == kReschedulePlanner) {
    derive_bound_of_orders(claimed, verification);
  } else if (document.request && (!document.parallelisms.empty() || document.ungrouped)) {
    derive_bound_of_parallelisms(claims, claimed, options, progress, verification);
  } else {
    BoundDerivation(claimed, options, progress, verification).run(claims);
  }
}

}  // namespace dapple::planner
