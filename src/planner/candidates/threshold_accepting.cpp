#include "planner/candidates/threshold_accepting.h"

#include <algorithm>
#include <random>

#include "dapple/cost/buckets.h"
#include "dapple/planner/candidates/depths.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/search/bounds/earliest_start_bound.h"
#include "planner/candidates/candidate_evaluator.h"

namespace dapple::planner {
namespace {

/// At first a change may cost the iteration divided by this.
constexpr std::int64_t kAllowance = 1000;
/// Changes tried for each simulation that the budget allows; most are ruled out by a bound.
constexpr std::int64_t kTriesPerSimulation = 20;

/// The costs of so many devices may be computed on the way through plans with other stages; they
/// take longer than short simulations.
constexpr std::int64_t kCostedDevices = 200'000;

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

/// Moves the boundaries between some neighbouring stages by one layer, all in one direction.
/// Returns whether every stage then has a layer and is as pinned.
bool move_boundaries(std::vector<StagePlan>& stages, const Pins& pins, Draws& draws) {
  const std::size_t one = draws.below(stages.size() - 1);
  const std::size_t other = draws.below(stages.size() - 1);
  const std::int32_t layers = draws.below(2) == 0 ? 1 : -1;
  const std::size_t first = std::min(one, other);
  const std::size_t last = std::max(one, other);
  for (std::size_t s = first; s <= last; ++s) {
    stages[s].layers.end += layers;
    stages[s + 1].layers.begin += layers;
  }
  for (std::size_t s = first; s <= last + 1; ++s) {
    stages[s].gradient_buckets.clear();
    if (stages[s].layers.size() < 1) return false;
    const auto replicas = replicas_of(stages[s]);
    if (!pins.allow(stages[s].layers, replicas, stages[s].recompute)) return false;
  }
  return true;
}

/// The computation of a stage for one micro-batch.
struct StageTimes {
  Duration forward;
  Duration backward;
};

/// Lower bound on the plan's time from computation alone: (B1), (B3b), (B5b) and (B5c) of
/// docs/bounds.md with transfers and reductions that take no time. It takes far less than the costs
/// of the plan. O(stages).
Duration bound_of_computation(const Plan& plan, const CostModel& costs) {
  std::vector<StageTimes> times;
  Duration round_trip;
  for (const StagePlan& stage : plan.stages) {
    const DeviceIndex first = stage.devices.front();
    const LayerTable& table =
        costs.in(stage.form)
            .table(samples_of(plan, stage, 0).size(), costs.topology().device(first).kind);
    const Duration forward = table.forward(stage.layers);
    const Duration again = stage.recompute ? forward : Duration{};
    times.push_back({.forward = forward, .backward = table.backward(stage.layers) + again});
    round_trip += forward + times.back().backward;
  }
  const std::int64_t all = plan.num_micro_batches;
  Duration bound;
  Duration start;
  Duration finish;
  Duration slowest;
  for (std::size_t s = 0; s < times.size(); ++s) {
    const auto [forward, backward] = times[s];
    const std::int64_t depth = plan.warmup_depths[s];
    const Duration wait = std::max(Duration{}, slowest - forward);
    const Duration span = std::max((depth - 1) * wait + all * (forward + backward),
                                   round_trip + (all - 1) * backward + (all - depth) * forward);
    bound = std::max(bound, start + span + finish);
    start += forward;
    finish += backward;
    round_trip -= forward + backward;
    slowest = std::max(slowest, forward);
  }
  return bound;
}

}  // namespace

Score threshold_accepting(const SimulatedPlan& start, const CostModel& costs,
                          const PlannerOptions& options, const ThresholdAcceptingLimits& limits) {
  const Plan& plan = start.plan;
  const std::int64_t budget = limits.actions;
  const DepthLimits memory(plan, costs, options.ignore_memory, options.transfers);
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

Score threshold_accepting_of_stages(const SimulatedPlan& start, const CostModel& costs,
                                    const PlannerOptions& options,
                                    const ThresholdAcceptingLimits& limits) {
  const std::int64_t budget = limits.actions;
  const std::int64_t micro_batches = start.plan.num_micro_batches;
  Draws draws;
  Score score;
  score.best = start;
  if (start.plan.stages.size() == 1) return score;
  SimulatedPlan here = start;
  std::int64_t tries_left =
      kTriesPerSimulation * (1 + budget / least_actions(start.plan.stages.size(), micro_batches));
  std::int64_t costs_left = kCostedDevices / costs.topology().device_count();
  while (score.actions < budget && tries_left-- > 0 && costs_left > 0) {
    if (limits.should_stop && limits.should_stop()) break;
    SimulatedPlan next = here;
    Plan& plan = next.plan;
    // Depths alone change one time in four, and boundaries alone as often.
    const std::size_t kind = options.has_free_depths() ? draws.below(4) : 1;
    if (kind != 0 && !move_boundaries(plan.stages, options.pins, draws)) continue;
    if (kind != 1) plan.warmup_depths = changed(plan.warmup_depths, draws);
    if (!are_legal(plan.warmup_depths, micro_batches)) continue;
    const Wide allowance = Wide{score.best.iteration.ns / kAllowance} * (budget - score.actions);
    const Duration most = here.iteration + Duration{divide_down(allowance, budget)};
    if (bound_of_computation(plan, costs) > most) continue;
    fill_gradient_buckets(plan, costs.profile());
    const DepthLimits memory(plan, costs, options.ignore_memory, options.transfers);
    if (!memory.fit_as_they_are(plan.warmup_depths)) continue;
    --costs_left;
    const PlanCost cost = costs.plan_cost(plan);
    const search::BoundedPlan bounded{plan, cost, costs.topology(), options.mode()};
    if (search::lower_bound_of_order(bounded) > most) continue;
    next.iteration = simulate_and_count(bounded, score, limits.should_stop);
    if (next.iteration > most) continue;
    here = next;
    if (here.iteration < score.best.iteration) score.best = here;
  }
  return score;
}

}  // namespace dapple::planner
