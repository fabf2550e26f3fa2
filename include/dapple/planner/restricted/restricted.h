// Plans for a runtime that gives all stages the same number of replicas, with equal shares of every
// micro-batch, that recomputes on all stages or on none, and whose launcher assigns devices by
// number; it may also cut a model into stages itself.
//
// The space is partitioned by the number of replicas and by recomputation, for a runtime that cuts
// the model itself also by the number of stages, and each part is searched with these pinned. The
// bound of each part is proven as without restrictions, and the least of these bounds holds for
// every plan that the runtime can express. Parts that cannot hold a plan, with a number of replicas
// that divides none of the micro-batch sizes, are left out.
#pragma once

#include <variant>

#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/result/infeasible.h"
#include "dapple/planner/result/made_plan.h"

namespace dapple::planner {

/// Makes a plan like make_plan(), within the restriction and within what the options pin. A part
/// that was given up, or not reached before the search was stopped, enters the bound with a lower
/// bound on all plans. Where the options ask for every family, each is planned for by itself, and
/// the bound is the least of theirs. O(make_plan(), times twice the numbers of replicas that are
/// tried, and times the numbers of stages for a runtime that cuts the model itself). Requires: no
/// cut is pinned at a joint.
std::variant<MadePlan, Infeasible> make_restricted_plan(const PlanningContext& context,
                                                        const PlanRestriction& restriction);

}  // namespace dapple::planner
