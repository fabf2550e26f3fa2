#include "planner/verify/verify_bound.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "dapple/planner/parallelism/asked_parallelisms.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/request/search_limits.h"
#include "dapple/planner/verify/make_proof.h"
#include "dapple/profile/variants.h"
#include "dapple/search/families/family_bound.h"
#include "planner/candidates/work_lower_bound.h"
#include "planner/families/searched_order.h"
#include "planner/one_family/exact_planner.h"
#include "planner/request/asked_families.h"
#include "planner/request/gradient_synchronizations.h"
#include "planner/request/micro_batches.h"
#include "planner/verify/bound_prover.h"
#include "planner/verify/exhaustive.h"
#include "planner/verify/space_problems.h"

namespace dapple::planner {
namespace {

/// The fraction 1/n of the budget for the search for a bound between the one from the work and the
/// stated one.
constexpr std::int64_t kPartOfRaising = 5;
/// The steps of diagrams and the states of a search that take about as long as costing a partial
/// plan, and the fraction 1/n of the steps that each problem may take at first.
constexpr std::int64_t kStepsOfPartialPlan = 400;
constexpr std::int64_t kStatesOfPartialPlan = 10;
constexpr std::int64_t kPartOfQuickSteps = 50;
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
/// (P1) or, if more, (F5), (F6)-(F7) or, for independent replicas, (F8).
Duration least_work(const ClaimedPlan& claimed, const PlannerOptions& options,
                    ScheduleFamily family) {
  const CostModel costs(claimed.document.profile, claimed.topology);
  const bool loops = has_loops(family);
  Duration least = kNoBound;
  for (const std::int64_t size : micro_batch_sizes(options).sizes) {
    const search::FamilyProblem problem{.global_batch_size = options.global_batch_size,
                                        .micro_batch_size = size,
                                        .split_backward = may_split_backward(family),
                                        .optimizer = options.optimizer,
                                        .ignore_memory = options.ignore_memory,
                                        .has_loops = loops};
    search::FamilyBound bound(costs, problem);
    const Duration of_family = options.replicas == Replicas::Independent ? bound.of_work(least)
                               : loops                                   ? bound.of_loops(least)
                                       : bound.of_pipelines(least);
    least = std::min(least, std::max(of_family, search::bound_of_work_alone(costs, problem)));
  }
  return least;
}

/// Whether plans of the family as they are pinned need more devices or samples than there are, as
/// in groups of devices that are too large for them. The stages of looped families share devices.
bool exceeds_inputs(const PlannerOptions& options, const Topology& topology,
                    ScheduleFamily family) {
  const Pins& pins = options.pins;
  const std::int64_t replicas = pins.replicas.value_or(1);
  const std::int64_t groups = has_loops(family) ? 1 : pins.stages.value_or(1);
  const std::int64_t largest = options.micro_batch_size.value_or(options.global_batch_size);
  return groups * replicas > topology.device_count() || (replicas > largest && !may_deal(options));
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

/// A proof that is being made, and the first problem whose bound could not be derived again.
struct ProofInMaking {
  ProofDocument document;
  std::optional<ProblemProof> unproven;
};

/// Where the proof of a bound comes from, and where it goes.
struct ProofSource {
  // Checked in place of deriving the bound; null if none is given. `position` is that of the first
  // problem of a form of parallelism.
  const ProofDocument* given = nullptr;
  std::size_t position = 0;
  // Filled in place of deriving the bound otherwise; null if none is made.
  ProofInMaking* made = nullptr;
};

class BoundDerivation {
 public:
  /// The form of parallelism is missing where forms are not told apart.
  BoundDerivation(const ClaimedPlan& claimed, std::optional<Parallelism> parallelism,
                  const VerifyOptions& options, Progress* progress, PlanVerification& verification)
      : claimed_(claimed),
        parallelism_(parallelism),
        budget_(options.budget),
        progress_(progress),
        verification_(verification),
        options_(options_of_claim(claimed.document)) {}

  void run(Claims& claims, ProofSource& source);

 private:
  bool looks_at(ScheduleFamily family) const;
  bool has_known_space() const;
  PlanningContext context() const {
    return {claimed_.document.profile, claimed_.topology, options_, progress_};
  }
  Duration least_work_of_pipelines() const;
  Duration of_pipelines(Duration stated, Claims& claims);
  Duration by_proof(Duration stated, ProofSource& source, Claims& claims);
  Duration of_any_order(Duration stated, bool has_proof);
  ExhaustiveOutcome go_through(Duration below, std::int64_t budget, bool any_order = false);
  Duration raise_between(Duration proven, Duration stated);
  bool prove_by_search(Duration stated, Claims& claims);
  void refute(const Plan& faster, Duration iteration, Duration stated, Claims& claims);

  const ClaimedPlan claimed_;
  const std::optional<Parallelism> parallelism_;
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

/// Whether the file says for which part of the space its bound holds.
bool BoundDerivation::has_known_space() const {
  return claimed_.document.request.has_value() || claimed_.document.search.complete;
}

ExhaustiveOutcome BoundDerivation::go_through(Duration below, std::int64_t budget, bool any_order) {
  const PlanDocument& document = claimed_.document;
  ExhaustiveProblem problem{.global_batch_size = options_.global_batch_size,
                            .micro_batch_sizes = micro_batch_sizes(options_).sizes,
                            .gradients = gradient_synchronizations(options_, document.profile),
                            .family = any_order
                                          ? ScheduleFamily::OneFOneB
                                          : options_.family.value_or(ScheduleFamily::OneFOneB),
                            .mode = options_.mode(),
                            .ignore_memory = options_.ignore_memory,
                            .pins = options_.pins,
                            .shares_by_speed = has_shares_by_speed(options_, claimed_.topology),
                            .may_deal = !any_order && may_deal(options_),
                            .any_order = any_order,
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
    problem.needs_filled_pipeline = restriction.needs_filled_pipeline;
    const auto layers = std::ssize(document.profile.layers);
    for (std::int64_t stages = 1; restriction.own_boundaries != nullptr && stages <= layers;
         ++stages) {
      auto boundaries = restriction.own_boundaries(document.profile, stages);
      if (boundaries) problem.own_boundaries.push_back(*std::move(boundaries));
    }
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

void BoundDerivation::refute(const Plan& faster, Duration iteration, Duration stated,
                             Claims& claims) {
  verification_.bound = BoundCheck::Refuted;
  claims.refuse("/predicted/lower_bound_ns",
                fmt::format("expected at most {}, which a plan takes ({}), got {}", iteration.ns,
                            shape_of(faster, claimed_.topology), stated.ns));
}

/// Returns the bound of plans under 1F1B and GPipe that follows from their work.
Duration BoundDerivation::least_work_of_pipelines() const {
  // (F5) is of replicas that share every micro-batch, on one device each.
  const bool is_of_all = may_deal(options_) || has_larger_groups(claimed_.document.profile);
  return is_of_all ? work_lower_bound(context())
                   : least_work(claimed_, options_, ScheduleFamily::OneFOneB);
}

/// Returns the proven bound of plans under 1F1B and GPipe.
Duration BoundDerivation::of_pipelines(Duration stated, Claims& claims) {
  const Duration of_work = least_work_of_pipelines();
  if (of_work >= stated || !has_known_space()) return of_work;
  const ExhaustiveOutcome outcome = go_through(stated, budget_ - budget_ / kPartOfRaising);
  if (outcome.faster) {
    refute(*outcome.faster, outcome.iteration, stated, claims);
    return of_work;
  }
  if (outcome.is_through) {
    verification_.proof = BoundProof::Exhaustion;
    return stated;
  }
  if (outcome.is_stopped) return of_work;
  if (prove_by_search(stated, claims)) return stated;
  return claims.empty() ? raise_between(of_work, stated) : of_work;
}

/// Proves the stated bound by what the search has, within the budget: relaxed diagrams, and the
/// search itself. Returns whether it did.
bool BoundDerivation::prove_by_search(Duration stated, Claims& claims) {
  const std::vector<SpaceProblem> problems =
      space_problems(context(), claimed_.restriction, parallelism_);
  BoundProver prover(context(), problems, stated);
  prover.prove({.quick_steps = budget_ * kStepsOfPartialPlan / kPartOfQuickSteps,
                .steps = budget_ * kStepsOfPartialPlan,
                .searched = budget_ * kStatesOfPartialPlan},
               false);
  if (prover.faster()) {
    refute(*prover.faster(), prover.iteration(), stated, claims);
    return false;
  }
  if (!prover.is_proven()) return false;
  const bool is_searched = prover.furthest_method() == ProofMethod::Search;
  verification_.proof = is_searched ? BoundProof::Search : BoundProof::Diagrams;
  return true;
}

/// Checks the proof that is given, or makes one. Returns what is proven.
Duration BoundDerivation::by_proof(Duration stated, ProofSource& source, Claims& claims) {
  const Duration of_work = least_work_of_pipelines();
  const std::vector<SpaceProblem> problems =
      space_problems(context(), claimed_.restriction, parallelism_);
  BoundProver prover(context(), problems, stated);
  if (source.given != nullptr) {
    const std::span<const ProblemProof> given = source.given->problems;
    source.position += prover.check(given.subspan(source.position), source.position);
    verification_.proof_faults = prover.take_faults();
    verification_.is_stopped = verification_.is_stopped || prover.is_stopped();
    verification_.proof = BoundProof::ProofFile;
    if (prover.faster()) refute(*prover.faster(), prover.iteration(), stated, claims);
  } else {
    prover.prove({.quick_steps = kSearchLimits.quick_steps,
                  .steps = kSearchLimits.diagram_steps,
                  .searched = INT64_MAX},
                 true);
    source.made->unproven = prover.unproven();
    std::ranges::move(prover.take(), std::back_inserter(source.made->document.problems));
  }
  const bool is_proven = prover.is_proven() && !prover.faster();
  return is_proven ? stated : of_work;
}

/// Returns the proven bound of plans with one stage per device in any order, (F9): without a proof
/// within what is left of the budget, at first by going through all plans.
Duration BoundDerivation::of_any_order(Duration stated, bool has_proof) {
  std::int64_t states = kSearchLimits.states_of_any_order;
  if (!has_proof) {
    const std::int64_t left = budget_ - std::min(budget_, verification_.partial_plans);
    const ExhaustiveOutcome outcome = go_through(stated, left, true);
    if (outcome.is_through) {
      verification_.proof = std::max(verification_.proof, BoundProof::Exhaustion);
      return stated;
    }
    if (outcome.is_stopped) return {};
    states = std::min(states, budget_ * kStatesOfPartialPlan);
  }
  const Duration bound = bound_of_any_order(context(), stated, states);
  if (bound >= stated) verification_.proof = std::max(verification_.proof, BoundProof::Search);
  return bound;
}

void BoundDerivation::run(Claims& claims, ProofSource& source) {
  const PlanDocument& document = claimed_.document;
  const Duration stated = *document.prediction.lower_bound;
  const bool has_proof = source.given != nullptr || source.made != nullptr;
  Duration proven = kNoBound;
  for (const ScheduleFamily family : kScheduleFamilies) {
    if (!looks_at(family) || exceeds_inputs(options_, claimed_.topology, family)) continue;
    Duration least;
    if (family != ScheduleFamily::OneFOneB) {
      least = least_work(claimed_, options_, family);
      const bool has_any_order = family == ScheduleFamily::ListScheduled;
      if (has_any_order && least < stated && has_known_space()) {
        least = std::max(least, of_any_order(stated, has_proof));
      }
    } else if (has_proof) {
      least = by_proof(stated, source, claims);
    } else {
      least = of_pipelines(stated, claims);
    }
    if (verification_.bound == BoundCheck::Refuted || !verification_.proof_faults.empty()) return;
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

/// Whether the plans of a form are those of a set of forms too, whose bound holds for them: in the
/// files of older versions they have a proof of their own.
bool is_left_to_set(const AskedParallelism& form, const std::vector<AskedParallelism>& asked,
                    const ProofSource& source) {
  if (!form.stage_forms.empty()) return false;
  if (source.given != nullptr && source.position < source.given->problems.size()) {
    const ProblemProof& next = source.given->problems[source.position];
    if (next.parallelism == form.parallelism && next.stage_forms.empty()) return false;
  }
  return std::any_of(asked.begin(), asked.end(), [&](const AskedParallelism& set) {
    return std::holds_alternative<PlanInputs>(set.inputs) &&
           are_plans_of_set(form.parallelism, set.parallelism, set.stage_forms);
  });
}

/// Derives the bound for every form of parallelism that was asked for. What is proven of all of
/// them is the least of what is proven of each.
void derive_bound_of_parallelisms(Claims& claims, const ClaimedPlan& claimed,
                                  const VerifyOptions& options, ProofSource& source,
                                  Progress* progress, PlanVerification& verification) {
  const PlanDocument& document = claimed.document;
  const Topology topology{document.original_topology()};
  const PlannerOptions asked = options_of(*document.request, document.plan.global_batch_size);
  Duration proven = kNoBound;
  bool is_proven = true;
  BoundProof proof = BoundProof::LeastWork;
  const std::vector<AskedParallelism> forms =
      asked_parallelisms({document.original_profile(), topology, asked}, claimed.restriction);
  // Under other schedules than 1F1B and GPipe, and for a target runtime, sets of forms have less.
  const bool may_leave = !claimed.restriction && !asks_for_families(asked);
  for (const AskedParallelism& form : forms) {
    const auto* inputs = std::get_if<PlanInputs>(&form.inputs);
    if (inputs == nullptr || (may_leave && is_left_to_set(form, forms, source))) continue;
    const Topology of_form{inputs->topology};
    PlanDocument of_others = document;
    of_others.profile = inputs->profile;
    of_others.topology = inputs->topology;
    verification.proof = BoundProof::LeastWork;
    const auto restriction = restriction_for(claimed.restriction, form.parallelism);
    BoundDerivation({of_others, of_form, restriction}, form.parallelism, options, progress,
                    verification)
        .run(claims, source);
    if (verification.bound == BoundCheck::Refuted || !verification.proof_faults.empty()) return;
    if (source.made != nullptr && source.made->unproven) return;
    is_proven = is_proven && verification.bound == BoundCheck::Proven;
    proven = std::min(proven, verification.proven);
    proof = std::max(proof, verification.proof);
  }
  verification.proven = std::min(proven, document.prediction.iteration);
  verification.bound = is_proven ? BoundCheck::Proven : BoundCheck::NotProven;
  verification.proof = proof;
}

void derive_bound_of_space(Claims& claims, const ClaimedPlan& claimed, const VerifyOptions& options,
                           ProofSource& source, Progress* progress,
                           PlanVerification& verification) {
  const PlanDocument& document = claimed.document;
  if (document.request && (!document.parallelisms.empty() || document.ungrouped)) {
    derive_bound_of_parallelisms(claims, claimed, options, source, progress, verification);
  } else {
    BoundDerivation(claimed, std::nullopt, options, progress, verification).run(claims, source);
  }
}

}  // namespace

void derive_bound(Claims& claims, const ClaimedPlan& claimed, const VerifyOptions& options,
                  Progress* progress, PlanVerification& verification) {
  const PlanDocument& document = claimed.document;
  if (!document.prediction.lower_bound) return;
  if (document.search.planner == kReschedulePlanner) {
    derive_bound_of_orders(claimed, verification);
    return;
  }
  ProofSource source{.given = options.proof};
  derive_bound_of_space(claims, claimed, options, source, progress, verification);
  if (options.proof == nullptr) {
    // What proves the stated bound of some plans does not prove the lower one of all.
    if (verification.bound == BoundCheck::NotProven) verification.proof = BoundProof::LeastWork;
    return;
  }
  if (!verification.proof_faults.empty()) return;
  const std::size_t count = options.proof->problems.size();
  if (source.position == count || verification.bound == BoundCheck::Refuted) return;
  verification.proof_faults.push_back(
      {fmt::format("/problems/{}", source.position),
       fmt::format("expected no more problems, got that of {}",
                   words_of(options.proof->problems[source.position]))});
}

MadeProof make_proof(const PlanDocument& document, const Topology& topology,
                     const std::optional<PlanRestriction>& restriction, Progress* progress) {
  Claims claims;
  PlanVerification verification;
  ProofInMaking made{.document = {.lower_bound = document.prediction.lower_bound.value()},
                     .unproven = std::nullopt};
  ProofSource source{.made = &made};
  derive_bound_of_space(claims, {document, topology, restriction}, {}, source, progress,
                        verification);
  MadeProof proof{.document = std::move(made.document)};
  if (made.unproven) proof.unproven = words_of(*made.unproven);
  const bool is_proven = verification.bound == BoundCheck::Proven;
  if (!is_proven && proof.unproven.empty()) proof.unproven = "schedules other than 1f1b and gpipe";
  proof.is_stopped = progress != nullptr && progress->should_stop();
  return proof;
}

}  // namespace dapple::planner
