#include "planner/one_family/plan_one_family.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/plan/optimality.h"
#include "dapple/planner/candidates/depths.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/planner/candidates/plan_pool.h"
#include "dapple/planner/candidates/score.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/request/search_limits.h"
#include "dapple/planner/request/warnings.h"
#include "dapple/planner/result/infeasible.h"
#include "dapple/planner/result/made_plan.h"
#include "dapple/profile/skip_tensors.h"
#include "planner/baselines/baseline_search.h"
#include "planner/candidates/as_pinned.h"
#include "planner/candidates/work_lower_bound.h"
#include "planner/memory/least_memory.h"
#include "planner/one_family/dapple_planner.h"
#include "planner/one_family/diagram_planner.h"
#include "planner/one_family/exact_planner.h"
#include "planner/request/asked_families.h"
#include "planner/request/part_of_search.h"
#include "planner/request/stop_question.h"
#include "planner/result/equally_fast.h"

namespace dapple::planner {
namespace {

/// Whether all devices are alike in kind and memory limit. Then a plan that does not fit on the
/// devices in order fits on no others.
bool has_alike_devices(const Topology& topology) {
  const DeviceIndex first{0};
  for (std::int32_t d = 1; d < topology.device_count(); ++d) {
    if (topology.device({d}).kind != topology.device(first).kind) return false;
    if (topology.memory_limit({d}) != topology.memory_limit(first)) return false;
  }
  return true;
}

/// Whether plans that are asked for may need more memory than the search for the least of it
/// counts: at least depths, on devices in order, or for tensors that are sent directly.
bool may_need_more(const PlanningContext& context) {
  const Pins& pins = context.options.pins;
  return pins.least_depths || context.profile.skip_tensors == SkipTensors::Direct ||
         (pins.in_order && !has_alike_devices(context.topology));
}

/// Finds a plan that fits, where the DAPPLE search, which is a heuristic, found none. The plan that
/// needs the least memory decides whether any fits.
std::variant<SimulatedPlan, Infeasible> plan_of_least_memory(
    const PlanningContext& context, const std::function<bool()>& should_stop) {
  const PlannerOptions& options = context.options;
  const CostModel costs(context.profile, context.topology);
  auto any = find_any_plan(costs, options, should_stop);
  if (auto* infeasible = std::get_if<Infeasible>(&any)) {
    infeasible->is_least_shortage = may_need_more(context);
    return std::move(*infeasible);
  }
  auto& candidate = std::get<search::Candidate>(any);
  if (options.pins.in_order) put_in_order(candidate.stages);
  const Score score = CandidateEvaluator(context).score(candidate, 0, Duration::infinite());
  if (score.best.feasible()) return score.best;
  Infeasible infeasible;
  infeasible.pins = options.pins;
  infeasible.is_certain = false;
  if (options.pins.least_depths || options.pins.in_order) {
    infeasible.conflict = NotFoundAsPinned{.by_depths = options.pins.least_depths};
  } else {
    check(context.profile.skip_tensors == SkipTensors::Direct,
          "the plan of least memory fits, but not at any depths");
    infeasible.conflict = NotFoundWithSkips{};
  }
  infeasible.remedy.kind = RemedyKind::SomeMemory;
  if (options.pins.least_depths) {
    infeasible.remedy.kind = RemedyKind::FewerPins;
    infeasible.remedy.pins.least_depths = true;
  }
  return infeasible;
}

/// Whether no plan fits where the search for the least memory finds none: it does not try other
/// forms of parallelism than the first, nor micro-batches that are dealt.
bool is_least_memory_proven(const PlanningContext& context) {
  return !may_fit_only_dealt(context.options, context.topology) &&
         context.profile.stage_forms.empty();
}

/// Whether the plan is of the family that these options ask for or, where they name none, under
/// 1F1B or GPipe.
bool is_of_one_family(const Plan& plan, const PlannerOptions& options) {
  if (options.family) return plan.family == *options.family;
  return plan.family == ScheduleFamily::OneFOneB || plan.family == ScheduleFamily::GPipe;
}

std::vector<BaselinePlan> compare_with(const DapplePlans& dapple, const PlanningContext& context) {
  // The baselines ignore pins.
  PlannerOptions of_others = context.options;
  of_others.pins = {};
  std::vector<BaselinePlan> plans = make_baselines(context.with(of_others));
  if (auto baseline = baseline_of(dapple, context)) plans.push_back(*std::move(baseline));
  return plans;
}

/// Whether decision diagrams find plans sooner than the DAPPLE searches, whose plans are asked for
/// neither as a baseline nor as alternatives.
bool is_left_to_diagrams(const PlanningContext& context) {
  const auto layers = static_cast<std::int64_t>(context.profile.layers.size());
  return context.options.planner == PlannerKind::Exact && !context.options.baselines &&
         context.pool == nullptr &&
         layers * context.topology.device_count() > kSearchLimits.left_to_diagrams &&
         is_for_diagrams(context);
}

/// Adds the baselines that fit and are plans of the requested kind.
void add_baselines(const std::vector<BaselinePlan>& baselines, const PlannerOptions& options,
                   std::vector<SimulatedPlan>& known) {
  for (const BaselinePlan& baseline : baselines) {
    if (!baseline.figures.feasible || !is_asked_for(baseline.plan, options)) continue;
    known.push_back({.plan = baseline.plan, .iteration = baseline.figures.iteration});
  }
}

/// Chooses among the best of the known plans, to which the baselines are added, and what takes as
/// long. The plans of the DAPPLE planner are left as that search has made them, and those of a part
/// of the space that another one beats as they are.
Plan choose(MadePlan& made, std::vector<SimulatedPlan> known, const PlanningContext& context,
            const StopQuestion& is_stopped) {
  const bool is_chosen_among_equal =
      context.options.planner == PlannerKind::Exact && known.front().iteration < context.to_beat;
  if (!is_chosen_among_equal) return known.front().plan;
  add_baselines(made.baselines, context.options, known);
  EquallyFast equal = choose_equally_fast(context, known, [&] { return is_stopped(); });
  if (context.pool != nullptr) context.pool->take(equal.chosen);
  made.frugal = equal.frugal;
  made.document.search.simulated += equal.simulated;
  return std::move(equal.chosen.plan);
}

/// Evaluates the chosen plan and documents it, with its proven bound and the warnings about it.
void evaluate_chosen(MadePlan& made, const Plan& plan, const PlanningContext& context,
                     std::optional<Duration> bound) {
  const PlannerOptions& options = context.options;
  PlanDocument& document = made.document;
  document.profile = context.profile;
  document.topology = context.topology.description();
  document.plan = plan;
  made.evaluation = evaluate(document.plan, context.profile, context.topology, options.mode());
  check(options.ignore_memory || made.evaluation.shortages.empty(),
        "the chosen plan does not fit memory");
  document.prediction = made.evaluation.prediction;
  set_proven_bound(document.prediction, bound);
  document.warnings = warnings_about(document, context.topology);
}

/// Adds what a search counted to the record of one that followed it.
void add_counts(const SearchRecord& first, SearchRecord& record) {
  record.states += first.states;
  record.candidates += first.candidates;
  record.simulated += first.simulated;
}

/// The part of the time limit that a search that another one follows may take.
constexpr double kPartOfFirst = 0.5;

/// Searches the space of one family in which replicas share every micro-batch. Where the exact
/// search tries all placements, decision diagrams come first only if part of it would take too
/// long. Elsewhere diagrams come first; in small problems part of the exact search follows, whose
/// placements are others.
ExactPlans search_shared(const PlanningContext& context, std::vector<SimulatedPlan> known) {
  const bool is_forced = context.diagrams != Diagrams::WhereLarge && has_room_for_diagrams(context);
  if (!is_for_diagrams(context) && !is_forced) {
    return plan_exactly(context, {.best = std::move(known),
                                  .bounds = {},
                                  .may_use_diagrams = has_room_for_diagrams(context)});
  }
  const auto layers = static_cast<std::int64_t>(context.profile.layers.size());
  const bool is_small = layers * context.topology.device_count() <= kSearchLimits.small;
  const bool is_followed = is_small && context.diagrams != Diagrams::Only;
  PlanningContext first = context;
  std::optional<PartOfSearch> part;
  if (is_followed && context.progress != nullptr) {
    first.progress = &part.emplace(*context.progress, kPartOfFirst);
  }
  ExactPlans plans = plan_by_diagrams(first, std::move(known));
  const Duration best = plans.best.empty() ? Duration::infinite() : plans.best.front().iteration;
  const bool is_closed = plans.lower_bound >= context.threshold(best);
  if (!is_followed || is_closed || StopQuestion(context.progress)()) return plans;
  ExactPlans exact = plan_exactly(context, {.best = std::move(plans.best),
                                            .bounds = std::move(plans.bounds),
                                            .part = kSearchLimits.part_after_diagrams});
  add_counts(plans.record, exact.record);
  return exact;
}

/// The plan as it runs where tensors that skip stages are sent directly, at depths at which it has
/// room for them; nothing if there are none.
std::optional<SimulatedPlan> with_direct_tensors(const SimulatedPlan& forwarded,
                                                 const PlanningContext& context,
                                                 const CostModel& costs) {
  const PlannerOptions& options = context.options;
  SimulatedPlan direct = forwarded;
  Plan& plan = direct.plan;
  const DepthLimits limits(plan, costs, options.ignore_memory, options.transfers);
  if (!limits.fit_as_they_are(plan.warmup_depths)) {
    const bool is_fixed = plan.family == ScheduleFamily::GPipe || options.pins.least_depths;
    const std::optional<Depths> fitting = is_fixed ? std::nullopt : limits.fit(plan.warmup_depths);
    if (!fitting) return std::nullopt;
    plan.warmup_depths = *fitting;
  }
  const PlanCost cost = costs.plan_cost(plan);
  Score score;
  const StopQuestion is_stopped(context.progress);
  direct.iteration = simulate_and_count({plan, cost, context.topology, options.mode()}, score,
                                        [&] { return is_stopped(); });
  if (direct.iteration.is_infinite()) return std::nullopt;
  return direct;
}

/// Searches the space of one family in which replicas share every micro-batch. Where tensors that
/// skip stages are sent directly, the bounds count few of them, and say little of which stages are
/// good. So plans that hand them on are searched first, and the best one runs with direct tensors.
ExactPlans search_both_ways(const PlanningContext& context, std::vector<SimulatedPlan> known) {
  const bool is_direct = context.profile.skip_tensors == SkipTensors::Direct;
  if (!is_direct || !may_skip_stages(context.profile)) {
    return search_shared(context, std::move(known));
  }
  ModelProfile handed_on = context.profile;
  handed_on.skip_tensors = SkipTensors::Forwarded;
  PlanningContext first{handed_on, context.topology, context.options, context.progress};
  std::optional<PartOfSearch> part;
  if (context.progress != nullptr) first.progress = &part.emplace(*context.progress, kPartOfFirst);
  const auto forwarded = plan_one_family(first, {});
  const auto* const made = std::get_if<MadePlan>(&forwarded);
  if (made != nullptr) {
    const CostModel costs(context.profile, context.topology);
    std::optional<SimulatedPlan> direct = with_direct_tensors(
        {.plan = made->document.plan, .iteration = made->document.prediction.iteration}, context,
        costs);
    if (direct) known.push_back(*std::move(direct));
    std::stable_sort(known.begin(), known.end(), better);
  }
  ExactPlans plans = search_shared(context, std::move(known));
  if (made != nullptr) add_counts(made->document.search, plans.record);
  return plans;
}

/// Searches the space of one family. Where stages may deal micro-batches, plans in which none does
/// are searched first and with the whole budget, so that the freedom never makes a slower plan.
/// Diagrams have no such stages: the bound is then that of the work.
ExactPlans search_space(const PlanningContext& context, std::vector<SimulatedPlan> known) {
  if (!may_deal(context.options)) return search_both_ways(context, std::move(known));
  const auto dealt = std::stable_partition(
      known.begin(), known.end(), [](const auto& some) { return !deals_micro_batches(some.plan); });
  std::vector<SimulatedPlan> others(dealt, known.end());
  known.erase(dealt, known.end());
  PlannerOptions shared = context.options;
  shared.replications = Replications::Split;
  PlanningContext first = context.with(shared);
  std::optional<PartOfSearch> part;
  if (context.progress != nullptr) first.progress = &part.emplace(*context.progress, kPartOfFirst);
  ExactPlans plans = search_shared(first, std::move(known));
  std::ranges::move(others, std::back_inserter(plans.best));
  std::stable_sort(plans.best.begin(), plans.best.end(), better);
  if (is_for_diagrams(context)) {
    plans.lower_bound = std::min(plans.lower_bound, work_lower_bound(context));
    plans.record.searched.emplace_back(kReplications);
    plans.record.cut.emplace_back(kCutDealt);
    plans.record.complete = false;
    return plans;
  }
  ExactPlans all = plan_exactly(context, {.best = std::move(plans.best)});
  add_counts(plans.record, all.record);
  return all;
}

/// Completes why nothing was found by the bound of the search, if there was one.
Infeasible with_bound(Infeasible none, std::optional<Duration> bound, const Topology& topology) {
  if (bound) none.lower_bound = *bound;
  // On devices that differ, other orders of them or shares by speed may need less memory.
  if (none.shortage && !has_alike_devices(topology)) {
    none.is_certain = bound && bound->is_infinite();
  }
  return none;
}

}  // namespace

std::vector<BaselinePlan> plans_of_others(const PlanningContext& context) {
  const PlannerOptions options = options_to_start(context.options);
  const PlanningContext start = context.with(options);
  return compare_with(plan_by_dapple(start), start);
}

bool is_asked_for(const Plan& plan, const PlannerOptions& options) {
  if (options.micro_batch_size && plan.micro_batch_size != *options.micro_batch_size) return false;
  if (options.family && plan.family != *options.family) return false;
  return is_as_pinned(plan, options.pins) &&
         (may_deal(options) ||
          std::all_of(plan.stages.begin(), plan.stages.end(), [](const StagePlan& stage) {
            return stage.replication == Replication::Split;
          }));
}

std::variant<MadePlan, Infeasible> plan_one_family(const PlanningContext& context,
                                                   std::vector<SimulatedPlan> known) {
  const PlannerOptions& options = context.options;
  MadePlan made;
  bool are_baselines_whole = true;
  const bool has_first_plan =
      context.first_plan != nullptr && is_of_one_family(*context.first_plan, options);
  const bool needs_first_plans = options.baselines || options.planner != PlannerKind::Exact ||
                                 !has_first_plan || !context.has_slower_first_plan();
  PlanningContext of_first_plans = context;
  if (is_left_to_diagrams(context)) of_first_plans.dapple_steps = DappleSteps::Opening;
  DapplePlans dapple = needs_first_plans ? plan_by_dapple(of_first_plans) : DapplePlans{};
  if (known.empty() && has_first_plan) {
    known.push_back({.plan = *context.first_plan, .iteration = context.first_iteration});
  }
  const StopQuestion is_stopped(context.progress);
  if (options.baselines && !is_stopped()) {
    made.baselines = compare_with(dapple, context);
    are_baselines_whole = !is_stopped();
    add_baselines(made.baselines, options, known);
  }
  std::move(dapple.best.begin(), dapple.best.end(), std::back_inserter(known));
  std::optional<Infeasible> infeasible;
  if (known.empty()) {
    // The plan of least memory may take long to find, so a stop ends here.
    if (is_stopped()) return stopped_before_a_plan();
    auto least = plan_of_least_memory(context, [&] { return is_stopped(); });
    if (auto* simulated = std::get_if<SimulatedPlan>(&least)) {
      if (is_asked_for(simulated->plan, options)) known.push_back(std::move(*simulated));
    } else {
      infeasible = std::get<Infeasible>(std::move(least));
      if (!is_least_memory_proven(context)) infeasible->is_certain = false;
    }
  }
  std::stable_sort(known.begin(), known.end(), better);

  made.document.search = std::move(dapple.record);
  std::optional<Duration> bound;
  const bool is_settled =
      infeasible && infeasible->is_certain && has_alike_devices(context.topology);
  if (options.planner == PlannerKind::Exact && !is_settled) {
    ExactPlans exact = search_space(context, std::move(known));
    known = std::move(exact.best);
    made.document.search = std::move(exact.record);
    bound = exact.lower_bound;
  }
  if (known.empty()) {
    if (is_stopped()) return stopped_before_a_plan();
    check(infeasible.has_value(), "nothing was found where something fits");
    return with_bound(*std::move(infeasible), bound, context.topology);
  }
  evaluate_chosen(made, choose(made, std::move(known), context, is_stopped), context, bound);
  if (options.baselines && bound && made.baselines.empty()) are_baselines_whole = false;
  const Duration iteration = made.document.prediction.iteration;
  const bool has_gap = bound && *bound < iteration;
  if (has_gap && !are_baselines_whole && is_within_gap(iteration, *bound, options.target_gap)) {
    made.lacks_baselines = true;
    if (!made.baselines.empty()) made.baselines.pop_back();
  }
  set_baselines(made, std::move(made.baselines));
  return made;
}

}  // namespace dapple::planner
