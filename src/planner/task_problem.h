// A plan's stages as a problem of orders.
#pragma once

#include <vector>

#include "dapple/cost/costs.h"
#include "dapple/plan/plan.h"
#include "dapple/schedule_search/task_order.h"

namespace dapple {

/// The stages with their costs, one device per group of devices, and as memory what is left beside
/// what does not pass with micro-batches. A group with replicas has the largest stash and the least
/// room of any of them, so that an order that fits here fits all. H1, H2 and V are kept to their
/// own limits too. Where a device has one stage, memory is counted in micro-batches.
/// Transfers take the time that they have on idle links. Requires: sound chunks and devices; depths
/// as memory is to count them in buffers.
TaskProblem task_problem(const Plan& plan, const PlanCost& costs);

/// The same times for the least path through independent replicas (least_path() in search/bound.h):
/// what bounds all orders there.
TaskProblem with_least_path(TaskProblem problem, const PlanCost& costs);

/// The order in a plan's words, group by group.
std::vector<std::vector<Action>> actions_of(const TaskOrder& order, bool split_backward);

}  // namespace dapple
