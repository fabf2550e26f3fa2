// What is known of how fast a candidate is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "dapple/core/quantity.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/simulation_mode.h"
#include "dapple/schedule/schedule.h"
#include "dapple/simulate/simulate.h"

namespace dapple::planner {

/// A candidate with the best depths found so far; infeasible until it has some.
struct SimulatedPlan {
  Plan plan;
  Duration iteration{INT64_MAX};
  std::size_t order = 0;  // of its candidate

  bool feasible() const { return iteration.ns != INT64_MAX; }
};

/// Faster first; of equals, fewer devices, fewer stages, the earlier candidate, shallower depths.
bool better(const SimulatedPlan& a, const SimulatedPlan& b);

/// The outcome and what it took; actions are those simulated, deterministic unlike time.
struct Score {
  SimulatedPlan best;
  std::int64_t actions = 0;
  std::int64_t simulated = 0;
  Duration bound;           // no depths that fit make the candidate faster
  bool is_settled = false;  // none makes it faster than `best`, or than what was to be beaten
};

/// What a plan is simulated with.
struct SimulationGround {
  const PlanCost& costs;
  const Topology& topology;
  SimulationMode mode = {};
  std::function<bool()> should_stop = {};
};

/// The iteration, INT64_MAX where it was told to stop; adds to the score what it took.
Duration simulate_and_count(const Plan& plan, const SimulationGround& ground, Score& score);

/// The same with all that happened.
struct Recorded {
  Schedule schedule;
  simulate::SimulationResult result;
};
Recorded record_and_count(const Plan& plan, const SimulationGround& ground, Score& score);

}  // namespace dapple::planner
