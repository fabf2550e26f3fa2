// Compares the baselines in a plan file with those made anew.
#pragma once

#include <vector>

#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/verify/verify.h"
#include "planner/verify/claimed_plan.h"
#include "planner/verify/claims.h"

namespace dapple::planner {

/// Makes the baselines anew, which takes about as long as the DAPPLE planner does, and compares
/// them. Adds to `unchecked` if it was stopped first, or if the search was stopped and some
/// baselines are missing or slower than those made here. Requires: the same as check_search().
void check_baselines_anew(Claims& claims, const ClaimedPlan& claimed, Progress* progress,
                          std::vector<Unchecked>& unchecked);

}  // namespace dapple::planner
