// Imports the topology XML of NCCL and RCCL, which NCCL_TOPO_DUMP_FILE writes and NCCL_TOPO_FILE
// reads (NVIDIA/nccl src/graph/xml.cc). One document may describe several hosts.
#pragma once

#include "interop/topologies/server_wiring.h"

namespace dapple::interop {

bool is_nccl_topology(std::string_view text);

/// Returns a wiring per host, in the order of the document. Throws Error(BadInput) with line
/// numbers for a text that is not XML, missing elements, hosts without devices (as in the static
/// files of cloud images, which contain only a skeleton of PCI devices without links), and figures
/// that are not numbers. Warns of links from a device to itself or to an unknown target, of missing
/// speeds, which are replaced by NCCL's defaults, and of PCIe switches whose uplink is slower than
/// the links of their devices. O(length) + O(ends^2 * depth), where ends are devices and NICs.
std::vector<ServerWiring> read_nccl_topology(const ForeignFile& file, ImportNotes& notes);

}  // namespace dapple::interop
