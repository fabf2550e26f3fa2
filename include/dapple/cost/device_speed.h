// The costs of a plan whose devices are not as fast as their kind: for questions such as what a
// slow device costs.
#pragma once

#include <functional>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/cost/plan_cost.h"

namespace dapple {

/// Returns the costs with forwards, backwards and their parts that take `slowness(device)` times as
/// long on each device, rounded up to whole nanoseconds. Transfers, reductions, optimizer steps,
/// memory and what passes take of NICs remain. O(replicas * buckets). Requires: all factors are
/// above zero.
PlanCost with_speeds(PlanCost costs, const std::function<Factor(DeviceIndex)>& slowness);

}  // namespace dapple
