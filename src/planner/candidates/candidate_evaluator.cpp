#include "planner/candidates/candidate_evaluator.h"

#include <algorithm>

#include "dapple/search/bounds/bound.h"
#include "planner/candidates/threshold_accepting.h"

namespace dapple::planner {
namespace {

/// A plan with no more legal depth vectors than this is tried at all of them.
constexpr std::int64_t kFewDepths = 1000;
/// Neighbours tried for each simulation that a budget allows; most are ruled out by a bound.
constexpr std::int64_t kTries = 20;

std::int64_t most_tries(const Plan& plan, std::int64_t budget) {
  return kTries * (1 + budget / least_actions(plan.stages.size(), plan.num_micro_batches));
}

/// Whether no smaller depths of the pipeline give the plan the same warm-up depths.
bool is_least_of_its_plan(Plan plan, const Depths& depths) {
  plan.warmup_depths = lane_depths(plan, depths);
  return pipeline_depths(plan) == depths;
}

}  // namespace

Plan CandidateEvaluator::plan_of(const search::Candidate& candidate) const {
  Plan plan{.global_batch_size = context_.options.global_batch_size,
            .micro_batch_size = candidate.micro_batch_size,
            .num_micro_batches = context_.options.global_batch_size / candidate.micro_batch_size,
            .stage_forms = stage_forms_of(context_.profile),
            .gradients = candidate.gradients,
            .family = context_.options.family.value_or(ScheduleFamily::OneFOneB),
            .warmup_depths = {},
            .stages = candidate.stages};
  fill_gradient_buckets(plan, context_.profile);
  return plan;
}

Duration CandidateEvaluator::bound_of(const Plan& plan, const PlanCost& cost) const {
  return search::lower_bound({plan, cost, context_.topology, context_.options.mode()});
}

Duration CandidateEvaluator::bound(const search::Candidate& candidate) const {
  Plan plan = plan_of(candidate);
  plan.warmup_depths.assign(plan.stages.size(), plan.num_micro_batches);
  return bound_of(plan, CostModel(context_.profile, context_.topology).plan_cost(plan));
}

bool CandidateEvaluator::try_depths(const Depths& depths, const PlanCost& cost,
                                    SimulatedPlan& current, Score& score) const {
  SimulatedPlan attempt = current;
  attempt.plan.warmup_depths = lane_depths(attempt.plan, depths);
  const search::BoundedPlan bounded{attempt.plan, cost, context_.topology, context_.options.mode()};
  // The first one takes far less.
  if (search::lower_bound_of_order(bounded) >= current.iteration ||
      lower_bound(bounded) >= current.iteration) {
    return true;
  }
  // A pool takes slower plans as well.
  const Duration most = context_.pool == nullptr ? current.iteration : Duration::infinite();
  if (!most.is_infinite() && bound_without_contention(bounded, depths, most) > most) {
    count_unsimulated(bounded, score);
    return true;
  }
  attempt.iteration = simulate_and_count(bounded, score, should_stop_, most);
  if (attempt.iteration.is_infinite()) return false;
  if (context_.pool != nullptr && better(attempt, score.nearest)) score.nearest = attempt;
  if (better(attempt, current)) current = std::move(attempt);
  return true;
}

std::vector<Depths> CandidateEvaluator::depths_to_try(const Plan& plan, const PlanCost& costs,
                                                      Duration bound, const Depths& assumed,
                                                      bool& are_all) const {
  const std::size_t stages = plan.stages.size();
  const std::int64_t micro_batches = plan.num_micro_batches;
  are_all = true;
  if (context_.options.family == ScheduleFamily::GPipe) return {Depths(stages, micro_batches)};
  // A single stage is never idle, at any depth.
  if (stages == 1) return {Depths{1}};
  if (context_.options.pins.least_depths) return {least_depths(stages, micro_batches)};
  std::vector<Depths> depths;
  if (!assumed.empty()) depths.push_back(assumed);
  const bool deals = deals_micro_batches(plan);
  if (deals) {
    for (Depths& some : depths_of_dealt(plan)) depths.push_back(std::move(some));
  }
  for (Depths& family : depth_families(stages, micro_batches)) depths.push_back(std::move(family));
  for (const std::int64_t slack : {1, 2, 3}) {
    for (const std::int64_t percent : {0, 2, 5, 12}) {
      const Duration target{bound.ns / 100 * (100 + percent)};
      depths.push_back(depths_for_target(plan, costs, target, slack));
    }
  }
  if (count_legal_depths(stages, micro_batches, kFewDepths + 1) > kFewDepths) {
    are_all = false;
    return depths;
  }
  for (Depths& legal : legal_depths(stages, micro_batches)) {
    if (deals && !is_least_of_its_plan(plan, legal)) continue;
    if (std::find(depths.begin(), depths.end(), legal) == depths.end()) {
      depths.push_back(std::move(legal));
    }
  }
  return depths;
}

Score CandidateEvaluator::score(const search::Candidate& candidate, std::size_t order,
                                Duration to_beat, std::optional<std::int64_t> budget) const {
  const CostModel costs(context_.profile, context_.topology);
  Score score;
  score.bound = candidate.bound;
  const std::int64_t micro_batches =
      context_.options.global_batch_size / candidate.micro_batch_size;
  if (lane_passes(candidate.stages, micro_batches, context_.options.replicas) >
      most_passes(context_.options.memory_limit)) {
    return score;
  }
  SimulatedPlan best{.plan = plan_of(candidate), .iteration = to_beat, .order = order};
  const DepthLimits limits(best.plan, costs, context_.options.ignore_memory,
                           context_.options.transfers);
  const Depths ones(candidate.stages.size(), 1);
  if (context_.options.family != ScheduleFamily::GPipe && !limits.fit_as_they_are(ones)) {
    score.is_settled = true;
    return score;
  }
  Plan deepest = best.plan;
  deepest.warmup_depths = lane_depths(deepest, limits.caps());
  const PlanCost deepest_cost = costs.plan_cost(deepest);
  score.bound = std::max(score.bound, bound_of(deepest, deepest_cost));
  bool are_all = false;
  std::vector<Depths> tried;
  for (const Depths& wanted :
       depths_to_try(best.plan, deepest_cost, score.bound, candidate.depths, are_all)) {
    if (score.bound >= best.iteration) break;
    if ((budget && score.actions >= *budget) || is_stopped()) {
      are_all = false;
      break;
    }
    std::optional<Depths> depths;
    if (limits.fit_as_they_are(wanted)) {
      depths = wanted;
    } else if (!are_all) {
      depths = limits.fit(wanted);
    }
    if (!depths || std::find(tried.begin(), tried.end(), *depths) != tried.end()) continue;
    if (!are_all) tried.push_back(*depths);
    if (!try_depths(*depths, deepest_cost, best, score)) {
      are_all = false;
      break;
    }
  }
  score.is_settled = are_all || score.bound >= best.iteration;
  if (!best.plan.warmup_depths.empty()) score.best = std::move(best);
  return score;
}

std::unique_ptr<DepthSearch> CandidateEvaluator::depths_of(const search::Candidate& candidate,
                                                           std::size_t order) const {
  const CostModel costs(context_.profile, context_.topology);
  const SimulatedPlan start{
      .plan = plan_of(candidate), .iteration = Duration::infinite(), .order = order};
  return std::make_unique<DepthSearch>(start, costs, context_.options, should_stop_);
}

Score CandidateEvaluator::refine_depths(const search::Candidate& candidate, std::size_t order,
                                        std::int64_t budget) const {
  Score first = score(candidate, order, Duration::infinite(), budget / 2);
  if (!first.best.feasible()) return first;
  Score refined = refine(first.best, budget - first.actions);
  refined.actions += first.actions;
  refined.simulated += first.simulated;
  if (better(first.nearest, refined.nearest)) refined.nearest = std::move(first.nearest);
  refined.bound = first.bound;
  refined.is_settled = first.is_settled;
  return refined;
}

Score CandidateEvaluator::threshold_accepting(const SimulatedPlan& start,
                                              std::int64_t budget) const {
  if (!has_free_depths() || start.plan.stages.size() == 1 || deals_micro_batches(start.plan)) {
    Score score;
    score.best = start;
    return score;
  }
  return planner::threshold_accepting(start, CostModel(context_.profile, context_.topology),
                                      context_.options,
                                      {.actions = budget, .should_stop = should_stop_});
}

Score CandidateEvaluator::refine(const SimulatedPlan& start, std::int64_t budget) const {
  const CostModel costs(context_.profile, context_.topology);
  Score score;
  score.best = start;
  if (!has_free_depths()) return score;
  if (is_deep(start.plan)) return threshold_accepting(start, budget);
  const DepthLimits limits(start.plan, costs, context_.options.ignore_memory,
                           context_.options.transfers);
  const PlanCost cost = costs.plan_cost(start.plan);
  std::int64_t tries_left = most_tries(start.plan, budget);
  for (bool improved = true; improved && score.actions < budget;) {
    improved = false;
    const Plan from = score.best.plan;
    for (const Depths& wanted : neighbours(from)) {
      if (score.actions >= 2 * budget || tries_left-- <= 0 || is_stopped()) return score;
      const std::optional<Depths> depths = limits.fit(wanted);
      if (!depths || lane_depths(from, *depths) == from.warmup_depths) continue;
      const Duration before = score.best.iteration;
      try_depths(*depths, cost, score.best, score);
      improved = improved || score.best.iteration < before;
    }
  }
  return score;
}

Score CandidateEvaluator::refine_stages(const SimulatedPlan& start, std::int64_t budget) const {
  check(!deals_micro_batches(start.plan), "stages that deal micro-batches were to be moved");
  return threshold_accepting_of_stages(start, CostModel(context_.profile, context_.topology),
                                       context_.options,
                                       {.actions = budget, .should_stop = should_stop_});
}

}  // namespace dapple::planner
