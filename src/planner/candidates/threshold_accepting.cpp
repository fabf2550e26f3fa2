#include "planner/candidates/threshold_accepting.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <random>
#include <utility>

#include "dapple/cost/buckets.h"
#include "dapple/planner/candidates/depth_search.h"
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

/// Changes tried in a walk that follows the bound.
constexpr std::int64_t kTriesOfWalk = 150;

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

/// From this depth on, steps grow with the depth.
constexpr std::int64_t kDeepStage = 64;
/// The largest step is at most the deepest stage's depth divided by this.
constexpr std::int64_t kPartOfDepth = 8;

/// Returns by how much depths change, of which the largest is `deepest`: one or two or, where
/// stages are so deep that such a step changes little, any power of two up to a part of the depth.
std::int64_t draw_step(std::int64_t deepest, Draws& draws) {
  if (deepest < kDeepStage) return draws.below(4) == 0 ? 2 : 1;
  const auto powers = std::bit_width(static_cast<std::uint64_t>(deepest / kPartOfDepth));
  return std::int64_t{1} << draws.below(static_cast<std::size_t>(powers));
}

/// Returns the depths with one or two ranges of stages made deeper or shallower by a step.
Depths changed(const Depths& from, Draws& draws) {
  Depths depths = from;
  for (std::size_t changes = 1 + draws.below(2); changes > 0; --changes) {
    const std::size_t one = draws.below(depths.size());
    const std::size_t other = draws.below(depths.size());
    const std::int64_t step = draw_step(from.front(), draws);
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

bool is_deep(const Plan& plan) {
  return plan.family == ScheduleFamily::OneFOneB && !deals_micro_batches(plan) &&
         plan.warmup_depths.front() >= kDeepStage;
}

namespace {

/// Threshold accepting from the depths of one plan.
class DepthWalk {
 public:
  DepthWalk(const SimulatedPlan& start, const CostModel& costs, const PlannerOptions& options,
            const ThresholdAcceptingLimits& limits)
      : options_(options),
        topology_(costs.topology()),
        limits_(limits),
        memory_(start.plan, costs, options.ignore_memory, options.transfers),
        cost_(costs.plan_cost(start.plan)),
        bound_({start.plan, cost_, topology_, options.mode()}),
        here_(start) {
    score_.best = start;
  }

  Score run() {
    if (is_deep(here_.plan)) walk_by_bounds();
    walk_by_simulations();
    return std::move(score_);
  }

 private:
  void walk_by_bounds();
  void walk_by_simulations();
  std::optional<Depths> next_depths(const Depths& from);
  void simulate(SimulatedPlan& plan, Duration most);

  Duration bound_at(const Depths& depths) {
    return bound_.bound({.least = depths, .most = depths});
  }
  /// What a change may cost after a part of the walk.
  Duration allowance(Duration best, std::int64_t done, std::int64_t all) const {
    return Duration{divide_down(Wide{best.ns / kAllowance} * (all - done), all)};
  }
  bool is_stopped() const { return limits_.should_stop && limits_.should_stop(); }

  const PlannerOptions& options_;
  const Topology& topology_;
  const ThresholdAcceptingLimits& limits_;
  const DepthLimits memory_;
  const PlanCost cost_;
  search::EarliestStartBound bound_;
  Draws draws_;
  SimulatedPlan here_;
  Score score_;
};

/// Takes up to half of the budget for walks that follow the bound, which is close to the iteration
/// and takes far less than a simulation. Each begins at the best depths so far.
void DepthWalk::walk_by_bounds() {
  const std::int64_t actions_of_bound = 1 + bound_.steps() / kStepsPerAction;
  const std::int64_t last = limits_.actions / 2;
  while (score_.actions < last && !is_stopped()) {
    Depths depths = here_.plan.warmup_depths;
    Duration bound = bound_at(depths);
    Depths best = depths;
    Duration least = bound;
    for (std::int64_t i = 0; i < kTriesOfWalk && score_.actions < last; ++i) {
      const std::optional<Depths> next = next_depths(depths);
      if (!next) continue;
      score_.actions += actions_of_bound;
      const Duration bound_of_next = bound_at(*next);
      if (bound_of_next > bound + allowance(least, i, kTriesOfWalk)) continue;
      depths = *next;
      bound = bound_of_next;
      if (bound < least) {
        least = bound;
        best = depths;
      }
    }
    SimulatedPlan found = here_;
    found.plan.warmup_depths = std::move(best);
    simulate(found, here_.iteration);
    if (found.iteration < here_.iteration) here_ = std::move(found);
  }
}

/// Takes the rest of the budget for a walk that follows the simulated iteration.
void DepthWalk::walk_by_simulations() {
  const std::int64_t first = score_.actions;
  const std::int64_t budget = limits_.actions - first;
  std::int64_t tries_left = kTriesPerSimulation * (1 + budget / bound_.steps());
  while (score_.actions - first < budget && tries_left-- > 0) {
    if (is_stopped()) break;
    const std::optional<Depths> depths = next_depths(here_.plan.warmup_depths);
    if (!depths) continue;
    const Duration most =
        here_.iteration + allowance(score_.best.iteration, score_.actions - first, budget);
    if (bound_at(*depths) > most) continue;
    SimulatedPlan next = here_;
    next.plan.warmup_depths = *depths;
    simulate(next, most);
    if (next.iteration <= most) here_ = std::move(next);
  }
}

/// Changes depths at random; nothing if that changes none, or they are not legal or do not fit.
std::optional<Depths> DepthWalk::next_depths(const Depths& from) {
  Depths depths = changed(from, draws_);
  const bool is_new = depths != from;
  if (!is_new || !are_legal(depths, here_.plan.num_micro_batches)) return std::nullopt;
  if (!memory_.fit_as_they_are(depths)) return std::nullopt;
  return depths;
}

/// Simulates the plan, and keeps it if it is the best. An iteration above `most` is not exact.
/// Requires: `most` is not below the best iteration.
void DepthWalk::simulate(SimulatedPlan& plan, Duration most) {
  plan.iteration = simulate_and_count({plan.plan, cost_, topology_, options_.mode()}, score_,
                                      limits_.should_stop, most);
  if (plan.iteration < score_.best.iteration) score_.best = plan;
}

}  // namespace

Score threshold_accepting(const SimulatedPlan& start, const CostModel& costs,
                          const PlannerOptions& options, const ThresholdAcceptingLimits& limits) {
  return DepthWalk(start, costs, options, limits).run();
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
  const std::int64_t actions_of_one = least_actions(start.plan.stages.size(), micro_batches);
  std::int64_t tries_left = kTriesPerSimulation * (1 + budget / actions_of_one);
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
    if (bound_without_contention(bounded, plan.warmup_depths, most) > most) {
      // It counts as a simulation, most of whose time it saves.
      score.actions += actions_of_one;
      continue;
    }
    next.iteration = simulate_and_count(bounded, score, limits.should_stop, most);
    if (next.iteration > most) continue;
    here = next;
    if (here.iteration < score.best.iteration) score.best = here;
  }
  return score;
}

}  // namespace dapple::planner
