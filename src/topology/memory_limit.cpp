#include "dapple/topology/memory_limit.h"

#include <algorithm>

namespace dapple {

Bytes memory_limit_of(const TopologyDescription& topology) {
  Bytes most;
  for (const DeviceKind& kind : topology.devices) {
    most = std::max(most, kind.memory - kind.reserved);
  }
  return most;
}

TopologyDescription with_memory_limit(TopologyDescription topology, Bytes limit) {
  for (DeviceKind& kind : topology.devices) {
    kind.memory = std::min(kind.memory, kind.reserved + limit);
  }
  return topology;
}

}  // namespace dapple
