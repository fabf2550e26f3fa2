// Breaks the time of an iteration down into parts that add up to it exactly.
//
// T is the simulated iteration, T_a the same with free transfers, and T_0 the same with free
// transfers and free all-reduces. M_l is the number of micro-batches of lane l, F_l and B_l its
// forward and backward (of the slowest replica of a split stage). D is the number of devices of the
// topology, used or not; f and b are the forward and backward of each replica by itself, r is the
// part of b in which it runs the forward again, and c what of the rest is collectives of its group.
// Then
//   compute        = floor(sum over replicas of M (f + b - r - c) / D)
//   collectives    = floor(sum over replicas of M (f + b - r) / D) - compute
//   recomputation  = floor(sum over replicas of M (f + b) / D) - compute - collectives
//   imbalance      = W - compute - collectives - recomputation,
//                    where W = max over lanes of M_l (F_l + B_l)
//   optimizer step = that of all stages of the lane with W; of several such lanes, the longest
//   bubble         = T_0 - W - optimizer step
//   transfers      = T - T_a, or 0 where transfers that share links with all-reduces shorten T
//   all-reduce     = T - T_0 - transfers
// Idle devices and unequal shares of a micro-batch count as imbalance. Where gradients are reduced
// beside computation, the slowdown of the computation counts as all-reduce.
#pragma once

#include "dapple/core/quantity.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/plan/prediction.h"
#include "dapple/schedule/schedule.h"
#include "dapple/topology/topology.h"

namespace dapple::planner {

/// The costs and the schedule of a plan, and its simulated times.
struct TimedSchedule {
  const PlanCost& costs;
  const Schedule& schedule;
  Duration iteration;
  /// The iteration with free transfers.
  Duration without_transfers;
  /// The iteration with free transfers and free all-reduces.
  Duration alone;
};

/// Returns the parts of the iteration. O(actions).
TimeParts time_parts(const TimedSchedule& timed, const Topology& topology);

/// Whether any gradients are reduced; those of a stage with a single replica are not, unless they
/// are tied.
bool has_reductions(const PlanCost& costs);

}  // namespace dapple::planner
