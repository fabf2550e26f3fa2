// The choice of a plan where devices are not equally fast.
#pragma once

#include <optional>

#include "dapple/planner/candidates/plan_pool.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/result/made_plan.h"

namespace dapple::planner {

/// Replaces the fastest plan by one whose iterations in the draws of the options' jitter have the
/// least median, of equals the least 95th percentile, then the least iteration without jitter, of
/// equals the first. Compared are plans with the same form of parallelism and family that are at
/// most slower by the deviation without jitter, and no faster: those of the pool and, where depths
/// are free, the best of them with other depths that fit memory. Sets what the document states of
/// the choice; bound and records remain those of the search. Deterministic within a fixed amount of
/// work, unless stopped. Requires: the options have a jitter, and the document has a request.
void choose_by_median(MadePlan& made, const PlanPool& pool, const PlanningContext& context,
                      const std::optional<PlanRestriction>& restriction);

}  // namespace dapple::planner
