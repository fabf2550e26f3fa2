// Makes a restricted plan where every schedule family is requested: each family that the runtime
// can run is planned for by itself.
#pragma once

#include <variant>

#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/result/infeasible.h"
#include "dapple/planner/result/made_plan.h"

namespace dapple::planner {

/// Makes a plan like make_restricted_plan() for each of the restriction's families and returns the
/// best one, with the least of their bounds. Requires: the options ask for every family.
std::variant<MadePlan, Infeasible> plan_restricted_families(const PlanningContext& context,
                                                            const PlanRestriction& restriction);

}  // namespace dapple::planner
