// The parts into which a restricted plan's space is divided.
#pragma once

#include <vector>

#include "dapple/plan/pins.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"

namespace dapple::planner {

/// Returns the pins of each part: one for each number of replicas that divides some micro-batch,
/// ascending, where the runtime cuts the model itself for each number of stages that it has and the
/// devices allow, ascending, without recomputation and, where the runtime can recompute, with it.
/// The pins of the options hold in all of them. Empty if the runtime cuts at no number of stages as
/// the options pin.
std::vector<Pins> restricted_parts(const PlanningContext& context,
                                   const PlanRestriction& restriction);

}  // namespace dapple::planner
