// ASTRA-sim's analytical network (inputs/network/*.yml): a network of dimensions, innermost first.
//
// The dimensions before the first switch, or a first switch alone, make a server: two devices are
// linked if they differ in one dimension only, and there are neighbours (Ring) or any two
// (FullyConnected). Further dimensions are switches: of the servers of a rack, of racks, of pods.
//
// Departure: where ASTRA-sim passes a message on from device to device, devices without a link have
// a host path of the slowest link's bandwidth and the latency of the longest way.
#pragma once

#include "interop/topologies/server_wiring.h"

namespace dapple::interop {

bool is_astra_network(std::string_view text);

/// The topology but for its devices' kind. Latencies of switches are doubled, as ASTRA-sim does.
/// Throws Error(BadInput) with line numbers: no YAML, keys that are missing, lists of different
/// lengths, figures that are none ("tbd"), a dimension that is no switch behind one that is.
TopologyDescription read_astra_network(const ForeignFile& file, ImportNotes& notes);

}  // namespace dapple::interop
