// Plans under 1F1B at any depths, or GPipe: the DAPPLE planner, what others would choose, and the
// exact search behind them.
#pragma once

#include <variant>
#include <vector>

#include "dapple/planner/request/planner.h"
#include "planner/candidates/candidate_evaluator.h"

namespace dapple::planner {

/// As make_plan() for one of these families. `known`: plans to start from, which may be beyond what
/// is pinned: the best of them is the result if nothing as pinned is faster, and its iteration then
/// the bound.
std::variant<MadePlan, Infeasible> plan_one_family(const ModelProfile& profile,
                                                   const Topology& topology,
                                                   const PlannerOptions& options,
                                                   Progress* progress,
                                                   std::vector<SimulatedPlan> known = {});

/// What the plan is compared with: make_baselines(), which know nothing of pins, and the DAPPLE
/// planner's plan. Where other families are asked for, it is what their search starts from.
std::vector<BaselinePlan> plans_of_others(const ModelProfile& profile, const Topology& topology,
                                          const PlannerOptions& options, Progress* progress);

/// Whether the options, pins and all, allow for the plan. Memory is not looked at.
bool is_asked_for(const Plan& plan, const PlannerOptions& options);

}  // namespace dapple::planner
