// Imports ASTRA-sim's analytical network (inputs/network/*.yml), a list of dimensions, innermost
// first.
//
// The dimensions before the first switch, or the first dimension alone if it is a switch, form a
// server. Without a switch, two devices are linked if they differ in a single dimension and, if
// that is a Ring, are neighbours in it; in a FullyConnected dimension any two devices are linked.
// The further dimensions must be switches: between the servers of a rack, between racks, and
// between pods.
//
// Departure from ASTRA-sim, which forwards messages from device to device: devices without a link
// have a host path with the bandwidth of the slowest link and the latency of the longest route.
#pragma once

#include "interop/topologies/server_wiring.h"

namespace dapple::interop {

bool is_astra_network(std::string_view text);

/// Returns the topology without the kind of its devices. Latencies of switches are doubled, as in
/// ASTRA-sim. Throws Error(BadInput) with line numbers for a text that is not YAML, missing or
/// repeated keys, lists of different lengths, figures that are not numbers ("tbd"), a dimension
/// after the server's that is not a switch, more than three of them, and too many devices.
TopologyDescription read_astra_network(const ForeignFile& file, ImportNotes& notes);

}  // namespace dapple::interop
