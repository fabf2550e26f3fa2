// Whether a plan is as was pinned.
#pragma once

#include "dapple/plan/pins.h"
#include "dapple/plan/plan.h"

namespace dapple::planner {

/// The number of stages, depths, and every stage by itself. O(stages * pins).
bool is_as_pinned(const Plan& plan, const Pins& pins);

/// Gives each stage as many devices as it has, from the first stage on in the order of the numbers
/// of all that they have together. Whether that changes anything. O(devices log devices). Requires:
/// no device is in two stages.
bool put_in_order(std::vector<StagePlan>& stages);

}  // namespace dapple::planner
