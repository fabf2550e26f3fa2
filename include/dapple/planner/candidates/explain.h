// Why an iteration takes as long as it does: parts of its time that add up to it exactly.
//
// With T the simulated iteration, T_a the same with free transfers and T_0 with free transfers and
// free all-reduces; M_l the micro-batches of lane l, F_l and B_l its forward and backward (of the
// slowest replica of a split stage), of which R_l runs the forward again; D the devices of the
// topology, used or not; and f, b, r the same times of each replica by itself:
//   compute        = floor(sum over replicas of M (f + b - r) / D)
//   recomputation  = floor(sum over replicas of M (f + b) / D) - compute
//   imbalance      = W - compute - recomputation, where W = max over lanes of M_l (F_l + B_l)
//   optimizer step = that of the lane with W, of all its stages; of equals, the longest
//   bubble         = T_0 - W - optimizer step
//   transfers      = T - T_a, or 0 where transfers that share links with all-reduces happen to help
//   all-reduce     = T - T_0 - transfers
// Idle devices and unequal shares of a micro-batch are imbalance. Where gradients are reduced
// beside computation, what that slows is all-reduce.
#pragma once

#include "dapple/core/quantity.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/plan/prediction.h"
#include "dapple/schedule/schedule.h"
#include "dapple/topology/topology.h"

namespace dapple::planner {

/// A plan with its costs and its schedule, and how long that takes.
struct TimedSchedule {
  const PlanCost& costs;
  const Schedule& schedule;
  Duration iteration;
  Duration without_transfers;  // with free transfers
  Duration alone;              // with free transfers and free all-reduces
};

/// The parts of the iteration. O(actions).
TimeParts time_parts(const TimedSchedule& timed, const Topology& topology);

/// Whether any gradients are reduced: those of a single replica are not.
bool has_reductions(const PlanCost& costs);

}  // namespace dapple::planner
