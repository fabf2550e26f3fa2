// Costs and simulates a plan, and checks whether it is sound.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/core/quantity.h"
#include "dapple/cost/cost_model.h"
#include "dapple/cost/memory.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/prediction.h"
#include "dapple/plan/simulation_mode.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/profile/model_profile.h"
#include "dapple/schedule/schedule.h"
#include "dapple/timeline/timeline.h"
#include "dapple/topology/topology.h"

namespace dapple::planner {

/// A plan with its costs and its simulation.
struct Evaluation {
  PlanCost costs;
  Schedule schedule;
  Timeline timeline;
  Prediction prediction;
  /// The iteration in the other mode for replicas (together or independent); nothing where the mode
  /// makes no difference or the simulation would take too long.
  std::optional<Duration> otherwise;
  std::vector<MemoryShortage> shortages;
};
/// Returns on how many threads tasks that each go through all actions of one plan are worth
/// running: two for a long plan, else one.
int threads_for(const Plan& plan, Replicas replicas);

/// Computes the costs of a plan and simulates it. Fills in the plan's gradient buckets if it has
/// none. Calls `beside` once and rethrows what it throws; where the plan is long, the call is made
/// on a second thread, beside the simulation. Requires: validate(plan, ...) is empty.
Evaluation evaluate(Plan& plan, const ModelProfile& profile, const Topology& topology,
                    SimulationMode mode, const std::function<void()>& beside = {});

/// Returns the iteration that evaluate() predicts, without simulating what else it does; nothing if
/// some device has too little memory, unless that is ignored, or the iteration is `most` or longer.
/// Fills in the plan's gradient buckets if it has none. Requires: as evaluate().
std::optional<Duration> iteration_below(Duration most, Plan& plan, const CostModel& costs,
                                        const PlannerOptions& options);

/// Returns the faults of a plan for its model and topology, with their places: in structure,
/// schedule and memory.
std::vector<Violation> check_plan(const Plan& plan, const ModelProfile& profile,
                                  const Topology& topology);

}  // namespace dapple::planner
