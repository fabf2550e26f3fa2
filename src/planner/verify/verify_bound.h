// Derives the lower bound that a plan file states anew.
#pragma once

#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/verify/verify.h"
#include "planner/verify/claimed_plan.h"
#include "planner/verify/claims.h"

namespace dapple::planner {

/// Derives the bound, or checks the proof that is given, and fills in its result in `verification`,
/// with the work that it took. A plan below the stated bound refutes the claim.
void derive_bound(Claims& claims, const ClaimedPlan& claimed, const VerifyOptions& options,
                  Progress* progress, PlanVerification& verification);

}  // namespace dapple::planner
