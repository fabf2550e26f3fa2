#include "planner/candidates/threshold_accepting.h"

#include <algorithm>
#include <random>

#include "dapple/planner/candidates/depths.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/search/bounds/earliest_start_bound.h"

namespace dapple::planner {
namespace {

/// At first a change may cost the iteration divided by this.
constexpr std::int64_t kAllowance = 1000;
/// Changes tried for each simulation that the budget allows; most are ruled out by a bound.
constexpr std::int64_t kTriesPerSimulation = 20;

/// Draws random numbers without the standard's distributions, whose results, unlike those of its
/// engines, depend on the library. RandomSequence would do as well, but its numbers are others, and
/// would lead to other depths, and so to other plan files.
class Draws {
 public:
  std::size_t below(std::size_t count) { return engine_() % count; }

 private:
  std::mt19937 engine_{1};
};

/// Returns the depths with one or two ranges of stages made deeper or shallower by one or two.
Depths changed(const Depths& from, Draws& draws) {
  Depths depths = from;
  for (std::size_t changes = 1 + draws.below(2); changes > 0; --changes) {
    const std::size_t one = draws.below(depths.size());
    const std::size_t other = draws.below(depths.size());
    const std::int64_t step = draws.below(4) == 0 ? 2 : 1;
    const std::int64_t change = draws.below(2) == 0 ? step : -step;
    for (std::size_t s = std::min(one, other); s <= std::max(one, other); ++s) depths[s] += change;
  }
  return depths;
}

bool are_legal(const Depths& depths, std::int64_t num_micro_batches) {
  return depths.front() <= num_micro_batches && depths.back() >= 1 &&
         std::is_sorted(depths.rbegin(), depths.rend());
}

}  // namespace

Score threshold_accepting(const SimulatedPlan& start, const CostModel& costs,
                          const PlannerOptions& options, const ThresholdAcceptingLimits& limits) {
  const Plan& plan = start.plan;
  const std::int64_t budget = limits.actions;
  const DepthLimits memory(plan, costs, options.ignore_memory);
  const PlanCost cost = costs.plan_cost(plan);
  search::EarliestStartBound earliest_start_bound({plan, cost, costs.topology(), options.mode()});
  Draws draws;
  Score score;
  score.best = start;
  SimulatedPlan here = start;
  std::int64_t tries_left = kTriesPerSimulation * (1 + budget / earliest_start_bound.steps());
  while (score.actions < budget && tries_left-- > 0) {
    if (limits.should_stop && limits.should_stop()) break;
    SimulatedPlan next = here;
    next.plan.warmup_depths = changed(here.plan.warmup_depths, draws);
    const Depths& depths = next.plan.warmup_depths;
    const bool is_new = depths != here.plan.warmup_depths;
    if (!is_new || !are_legal(depths, plan.num_micro_batches)) continue;
    if (!memory.fit_as_they_are(depths)) continue;
    const Wide allowance = Wide{score.best.iteration.ns / kAllowance} * (budget - score.actions);
    const Duration most = here.iteration + Duration{divide_down(allowance, budget)};
    if (earliest_start_bound.bound({.least = depths, .most = depths}) > most) continue;
    next.iteration = simulate_and_count({next.plan, cost, costs.topology(), options.mode()}, score,
                                        limits.should_stop);
    if (next.iteration > most) continue;
    here = next;
    if (here.iteration < score.best.iteration) score.best = here;
  }
  return score;
}

}  // namespace dapple::planner
