// Checks what a plan file says that was asked.
#pragma once

#include "planner/verify/claimed_plan.h"
#include "planner/verify/claims.h"

namespace dapple::planner {

/// Checks that the plan is one of those that the request allows. Requires: the document has a
/// request.
void check_request(Claims& claims, const ClaimedPlan& claimed);

}  // namespace dapple::planner
