// Checks plans against pins, and puts devices into the order that a pin asks for.
#pragma once

#include "dapple/plan/pins.h"
#include "dapple/plan/plan.h"

namespace dapple::planner {

/// Whether the plan satisfies the pins: the number of stages, equal shares, the depths, the order
/// of devices, and every stage by itself. O(stages * pins).
bool is_as_pinned(const Plan& plan, const Pins& pins);

/// Reassigns the devices of all stages so that their numbers ascend from the first stage on; each
/// stage keeps its number of devices. Returns whether that changed anything.
/// O(devices log devices). Requires: no device is in two stages.
bool put_in_order(std::vector<StagePlan>& stages);

}  // namespace dapple::planner
