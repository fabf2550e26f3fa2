// A plan's stages as a problem of orders.
#pragma once

#include <vector>

#include "dapple/cost/cost_model.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/plan/plan.h"
#include "dapple/schedule_search/tasks/task_order.h"

namespace dapple::planner {

/// The stages with their costs, one device per group of devices, and as memory what is left beside
/// what does not pass with micro-batches. Where a device has one stage, memory is counted in
/// micro-batches, and fits each replica; else, and where a split backward is recomputed for, it is
/// that of the replica with the least room. What every replica holds, with what waits at its
/// boundaries, is limited beside that, so that an order fits here if and only if it fits all. H1,
/// H2 and V are kept to their own limits too. Transfers and reductions take the time that they have
/// on idle links.
/// Requires: sound chunks and devices; depths of one, `costs` with them.
schedule_search::TaskProblem task_problem(const Plan& plan, const PlanCost& costs,
                                          const CostModel& model);

/// The same problem with times that no order of the plan undercuts: a backward in one piece may
/// take the place of its two parts, which together may take longer, and reductions overlap with
/// more of it; where replicas are independent, along the least path through them (least_path() in
/// search/bounds/bound.h), which is `independent`.
schedule_search::TaskProblem for_bound(schedule_search::TaskProblem problem, const PlanCost& costs,
                                       bool independent);

/// A plan's order, device by device, as tasks: a backward in one piece is two tasks where backwards
/// are split, and the two parts are one where they are not, in the place of the first.
schedule_search::TaskOrder tasks_of(const std::vector<std::vector<Action>>& lists,
                                    bool split_backward);

/// The order in a plan's words, group by group.
std::vector<std::vector<Action>> actions_of(const schedule_search::TaskOrder& order,
                                            bool split_backward);

}  // namespace dapple::planner
