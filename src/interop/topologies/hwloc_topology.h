// hwloc's XML of version 2 (lstopo --of xml) with the distances "NVLinkBandwidth": which devices
// have NVLinks to each other or to switches, and where on PCIe they are.
#pragma once

#include "interop/topologies/server_wiring.h"

namespace dapple::interop {

bool is_hwloc_topology(std::string_view text);

/// Devices are the operating system's devices "nvml0", "nvml1", ...; links are counted from MB/s,
/// 25 GB/s each and 20 GB/s those of Pascal, and have NCCL's effective figure afterwards. Network
/// devices of OpenFabrics are NICs. Throws Error(BadInput) with line numbers: no XML, no devices of
/// NVML, a matrix of another size than its objects, figures that are no whole number of links.
ServerWiring read_hwloc_topology(const ForeignFile& file, ImportNotes& notes);

}  // namespace dapple::interop
