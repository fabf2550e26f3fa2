// NCCL's topology XML, as NCCL_TOPO_DUMP_FILE writes it and NCCL_TOPO_FILE reads it (NVIDIA/nccl
// src/graph/xml.cc), RCCL's too. One document may hold several hosts.
#pragma once

#include "interop/topologies/server_wiring.h"

namespace dapple::interop {

bool is_nccl_topology(std::string_view text);

/// A wiring per host, in the order in which they come. Throws Error(BadInput) with line numbers: no
/// XML, other elements, no devices (as in the static files of cloud images, which have a skeleton
/// of PCI devices and no links), figures that are none. Warns of links from a device to itself or
/// to what is not there, of speeds that are missing, for which NCCL's defaults stand, and of PCIe
/// switches with a slower link up than their devices have. O(length), and ends^2 times depth.
std::vector<ServerWiring> read_nccl_topology(const ForeignFile& file, ImportNotes& notes);

}  // namespace dapple::interop
