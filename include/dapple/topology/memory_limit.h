// Limits on the memory of a topology's devices.
#pragma once

#include "dapple/core/quantity.h"
#include "dapple/topology/description.h"

namespace dapple {

/// Returns the memory in bytes that a plan may use on the device that has most. O(kinds).
Bytes memory_limit_of(const TopologyDescription& topology);

/// Returns the topology in which plans may use at most `limit` bytes of each device. O(kinds).
TopologyDescription with_memory_limit(TopologyDescription topology, Bytes limit);

}  // namespace dapple
