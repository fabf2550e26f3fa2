// The part of a topology that has devices of one kind.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/topology/description.h"
#include "dapple/topology/topology.h"

namespace dapple {

/// Returns the kinds of devices that servers have, as positions in TopologyDescription::devices, in
/// the order of their first devices. O(servers * kinds).
std::vector<std::int32_t> kinds_in_use(const Topology& topology);

/// Returns the servers whose devices are of one kind, in their order, with the links that they have
/// in the whole: racks and pods lose the members that are left out, and keep the bandwidth of their
/// uplinks. The i-th device of the part is the i-th of that kind in the whole. Empty where no
/// server has such devices. `kind` is a position in TopologyDescription::devices. O(servers).
/// Requires: devices do not stand for groups.
TopologyDescription servers_of_kind(const Topology& whole, std::int32_t kind);

}  // namespace dapple
