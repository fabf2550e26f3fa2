// Imports hwloc's XML of version 2 (lstopo --of xml) with the distances "NVLinkBandwidth": the
// NVLinks of devices to each other or to switches, and the positions of devices on PCIe.
#pragma once

#include "interop/topologies/server_wiring.h"

namespace dapple::interop {

bool is_hwloc_topology(std::string_view text);

/// Returns the wiring of the server. Its devices are the operating system's devices "nvml0",
/// "nvml1", ..., and its NICs those of OpenFabrics. The number of links is derived from the MB/s,
/// at 25 GB/s per link, or 20 GB/s for Pascal; the links then have NCCL's effective bandwidth.
/// Throws Error(BadInput) with line numbers for a text that is not XML, missing NVML devices, a
/// matrix whose size does not match its objects, and figures that are not a whole number of links.
ServerWiring read_hwloc_topology(const ForeignFile& file, ImportNotes& notes);

}  // namespace dapple::interop
