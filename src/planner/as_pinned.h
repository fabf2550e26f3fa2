// Whether a plan is as was pinned.
#pragma once

#include "dapple/plan/pins.h"
#include "dapple/plan/plan.h"

namespace dapple {

/// The number of stages, depths, and every stage by itself. O(stages * pins).
bool is_as_pinned(const Plan& plan, const Pins& pins);

}  // namespace dapple
