// The bound that a plan file states, derived anew.
#pragma once

#include "dapple/planner/verify/verify.h"
#include "planner/verify/claims.h"
#include "planner/verify/verify_record.h"

namespace dapple::planner {

/// Fills `verification`'s bound and what it took; a plan below the stated bound is a false claim.
void derive_bound(Claims& claims, const ClaimedPlan& claimed, const VerifyOptions& options,
                  Progress* progress, PlanVerification& verification);

}  // namespace dapple::planner
