// Plans under 1F1B at any depths, or GPipe: runs the DAPPLE planner, makes the baselines, and then
// runs the exact search.
#pragma once

#include <variant>
#include <vector>

#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/result/infeasible.h"
#include "dapple/planner/result/made_plan.h"
#include "planner/candidates/candidate_evaluator.h"

namespace dapple::planner {

/// Makes a plan like make_plan() for one of these families. The search starts from the plans in
/// `known`, which need not satisfy the pins: the best of them is the result, and its iteration the
/// bound, if no plan that satisfies the pins is faster.
std::variant<MadePlan, Infeasible> plan_one_family(const PlanningContext& context,
                                                   std::vector<SimulatedPlan> known = {});

/// Returns the baselines that a plan is compared with: those of make_baselines(), which ignores
/// pins, and the plan of the DAPPLE planner. Where other families are requested, the DAPPLE planner
/// runs as the start of their search.
std::vector<BaselinePlan> plans_of_others(const PlanningContext& context);

/// Whether the options, pins included, allow the plan. Memory is not checked.
bool is_asked_for(const Plan& plan, const PlannerOptions& options);

}  // namespace dapple::planner
