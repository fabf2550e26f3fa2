// The simulated plans of a candidate, and what is known about its best iteration.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/simulation_mode.h"
#include "dapple/schedule/schedule.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/simulate/simulate.h"

namespace dapple::planner {

/// A candidate's plan at the best depths found so far; infeasible until some depths were found.
struct SimulatedPlan {
  Plan plan;
  Duration iteration = Duration::infinite();
  /// The position of its candidate, which breaks ties.
  std::size_t order = 0;

  bool feasible() const { return !iteration.is_infinite(); }
};

/// Returns the devices of all stages in sum. O(stages). Requires: no device has several stages.
std::int64_t devices_used(const Plan& plan);

/// Whether `a` is better than `b`: faster; of equals, with fewer devices, then fewer stages, then
/// from the earlier candidate, then with shallower depths.
bool better(const SimulatedPlan& a, const SimulatedPlan& b);

/// The outcome of evaluating a candidate, and the work that it took.
struct Score {
  SimulatedPlan best;
  /// The actions of simulations, and of those that a bound made superfluous: a measure of work
  /// that, unlike time, is deterministic.
  std::int64_t actions = 0;
  /// The number of simulations.
  std::int64_t simulated = 0;
  /// A lower bound on the candidate's iteration at any depths that fit.
  Duration bound;
  /// Whether no depths make the candidate faster than `best`, or than the iteration to beat.
  bool is_settled = false;
  /// The best plan that was simulated, also where it does not beat that iteration; only where the
  /// context has a pool.
  SimulatedPlan nearest = {};
};

/// Simulates a plan and returns its iteration, which is infinite where `should_stop` ended the
/// simulation; adds the work of a whole simulation to the score. Of an iteration longer than `most`
/// it returns some lower bound above that.
Duration simulate_and_count(const search::BoundedPlan& bounded, Score& score,
                            const std::function<bool()>& should_stop = {},
                            Duration most = Duration::infinite());

/// Lower bound (T4) on the iteration of a plan whose stages have `depths`, its own: the simulated
/// time without contention, in a fraction of the time of a simulation. Above `most` it may be
/// smaller, but stays above. Zero if a stage deals its micro-batches. O(stages * micro-batches *
/// ports).
Duration bound_without_contention(search::BoundedPlan bounded,
                                  const std::vector<std::int64_t>& depths, Duration most);

/// Adds the work of a simulation of the plan that a bound has made superfluous, so that what a
/// search examines does not depend on whether it is simulated.
void count_unsimulated(const search::BoundedPlan& bounded, Score& score);

/// A simulation with its schedule and timeline.
struct Recorded {
  Schedule schedule;
  simulate::SimulationResult result;
};
/// Simulates a plan like simulate_and_count() and records the timeline.
Recorded record_and_count(const search::BoundedPlan& bounded, Score& score,
                          const std::function<bool()>& should_stop = {});

}  // namespace dapple::planner
