// Repeats the search of several schedule families or forms of parallelism, whose best plans are not
// in a plan file, and compares what came of them with the file's records.
#pragma once

#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/verify/verify.h"
#include "planner/verify/claimed_plan.h"
#include "planner/verify/claims.h"

namespace dapple::planner {

/// Repeats the search within the budget, without one if a proof is given, and refuses or leaves
/// open what verify() says. Does nothing for a file with one family and one form. Requires: the
/// document has a request, and as many records as its search makes.
void repeat_search(Claims& claims, const ClaimedPlan& claimed, const VerifyOptions& options,
                   Progress* progress, PlanVerification& verification);

}  // namespace dapple::planner
