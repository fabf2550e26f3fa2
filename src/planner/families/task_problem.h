// Turns the stages of a plan into a task problem, the input of the order search, and orders of
// tasks into orders of actions and back.
#pragma once

#include <vector>

#include "dapple/cost/cost_model.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/plan/plan.h"
#include "dapple/schedule_search/tasks/task_order.h"

namespace dapple::planner {

/// Returns the task problem of a plan's stages with their costs. Each group of devices is one
/// device, whose memory limit is the memory that is left for micro-batches in flight.
///
/// Where a device has one stage, memory is counted in micro-batches, as many as fit every replica.
/// Where it has several, or where it recomputes and backwards are split, memory is counted in bytes
/// of the replica with the least room. In addition the holding of every replica is limited, with
/// the tensors that wait at its boundaries, so that an order fits the problem if and only if it
/// fits all replicas. H1, H2 and V are also kept to their own limits. Transfers and reductions take
/// their times on idle links.
///
/// Requires: valid chunks and devices; depths of one in the plan and in `costs`.
schedule_search::TaskProblem task_problem(const Plan& plan, const PlanCost& costs,
                                          const CostModel& model);

/// Returns the same problem with times that are lower bounds for every order of the plan: a
/// backward in one piece may replace its two parts, which together may take longer, and reductions
/// overlap with more of it. `independent` says whether times are those along the least path through
/// independent replicas (least_path() in search/bounds/bound.h).
schedule_search::TaskProblem for_bound(schedule_search::TaskProblem problem, const PlanCost& costs,
                                       bool independent);

/// Turns the order of a plan, device by device, into tasks. Where backwards are split, a backward
/// in one piece becomes two tasks; where they are not, the two parts become one task in the place
/// of the first.
schedule_search::TaskOrder tasks_of(const std::vector<std::vector<Action>>& lists,
                                    bool split_backward);

/// Turns an order of tasks into actions of a plan, group of devices by group.
std::vector<std::vector<Action>> actions_of(const schedule_search::TaskOrder& order,
                                            bool split_backward);

}  // namespace dapple::planner
