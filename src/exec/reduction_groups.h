// Among whom a stage's gradients are reduced, and in which rings.
#pragma once

#include <vector>

#include "dapple/cost/costs.h"
#include "dapple/exec/all_reduce.h"
#include "dapple/plan/plan.h"
#include "dapple/topology/topology.h"

namespace dapple {

/// By stage and bucket, as the cost model reduces it: server by server, or in one ring over all
/// replicas. Requires: `costs` are the plan's.
std::vector<std::vector<ReductionGroup>> reduction_groups(const Plan& plan, const PlanCost& costs,
                                                          const Topology& topology);

}  // namespace dapple
