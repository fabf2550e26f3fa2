// Among whom gradients are reduced, and in which rings.
#pragma once

#include "dapple/cost/plan_cost.h"
#include "dapple/exec/message/all_reduce.h"
#include "dapple/plan/plan.h"
#include "dapple/topology/topology.h"

namespace dapple::exec {

/// As the cost model reduces them: server by server, or in one ring over all devices. Requires:
/// `costs` are the plan's.
ReductionGroups reduction_groups(const Plan& plan, const PlanCost& costs, const Topology& topology);

}  // namespace dapple::exec
