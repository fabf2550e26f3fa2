// The groups in which gradients are reduced.
#pragma once

#include "dapple/cost/plan_cost.h"
#include "dapple/exec/message/all_reduce.h"
#include "dapple/plan/plan.h"
#include "dapple/topology/topology.h"

namespace dapple::exec {

/// Returns the groups that the cost model assumes: hierarchical by server, or one flat ring over
/// all devices; those of buckets scattered if the plan shards the optimizer's state. Requires:
/// `costs` are the costs of `plan`.
ReductionGroups reduction_groups(const Plan& plan, const PlanCost& costs, const Topology& topology);

}  // namespace dapple::exec
