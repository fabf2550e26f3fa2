// Checks that a plan is structurally valid.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/plan/plan.h"
#include "dapple/topology/topology.h"

namespace dapple {

/// Returns the structural faults of a plan, each with a JSON pointer into it: layers covered by no
/// stage or by two, devices that are used twice or do not exist, more replicas than samples, batch
/// sizes whose product is wrong, warm-up depths that are out of range or rise from one stage to the
/// next, forms that the plan does not have, and the like. Memory is not checked here, nor are
/// deadlocks other than those of rising depths. Empty if the plan is valid. O(stages + devices).
std::vector<Violation> validate(const Plan& plan, std::int32_t layer_count,
                                const Topology& topology);

}  // namespace dapple
