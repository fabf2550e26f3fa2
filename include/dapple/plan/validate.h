// Whether a plan is sound.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/plan/plan.h"
#include "dapple/topology/topology.h"

namespace dapple {

/// Structural faults, each named, with a JSON pointer into the plan: layers not covered or covered
/// twice, devices used twice or not there, fewer samples than replicas, batch sizes that do not
/// multiply, warm-up depths that are out of range or rise from a stage to the next. Memory and
/// deadlocks are not looked at here. Empty if the plan is sound. O(stages + devices).
std::vector<Violation> validate(const Plan& plan, std::int32_t layer_count,
                                const Topology& topology);

}  // namespace dapple
