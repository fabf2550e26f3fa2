// Checks what a plan file without a request says about its search.
#pragma once

#include <vector>

#include "dapple/planner/verify/verify.h"
#include "planner/verify/claimed_plan.h"
#include "planner/verify/claims.h"

namespace dapple::planner {

/// Checks the record, completeness, the number of open plans and the warnings in a document without
/// a request, if its plan was imported, rescheduled or chosen as a baseline. Returns false for any
/// other plan, without checking anything. Adds to `unchecked` the warnings that do not follow from
/// the plan.
bool check_unsearched(Claims& claims, const ClaimedPlan& claimed,
                      std::vector<Unchecked>& unchecked);

/// Checks that a document of a planner without a request does not contradict itself.
void check_unasked(Claims& claims, const ClaimedPlan& claimed);

}  // namespace dapple::planner
