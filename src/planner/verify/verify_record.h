// Checks what a plan file says about its search against the request: the dimensions searched and
// left out, the families, completeness and warnings.
#pragma once

#include "planner/verify/claimed_plan.h"
#include "planner/verify/claims.h"

namespace dapple::planner {

/// Checks the record of the search, completeness, the number of open plans and the warnings;
/// figures that count work are not checked. Requires: a request that check_request() accepts.
void check_search(Claims& claims, const ClaimedPlan& claimed);

/// Refuses a recorded stop that changed nothing, as the planner does not record it.
void refuse_stop(Claims& claims, const PlanDocument& document);

}  // namespace dapple::planner
