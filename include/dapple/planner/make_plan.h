// Makes a plan: the use case of this module.
#pragma once

#include <variant>

#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/result/infeasible.h"
#include "dapple/planner/result/made_plan.h"

namespace dapple::planner {

/// Returns the fastest feasible plan that the planner finds, no slower than any feasible baseline.
/// Requires: check_compatible() is empty. Deterministic, unless stopped. Throws Error(BadInput),
/// with a place in the request as a plan's file records it, if options contradict each other (a
/// micro-batch size that does not divide the global batch).
std::variant<MadePlan, Infeasible> make_plan(const PlanningContext& context);

}  // namespace dapple::planner
