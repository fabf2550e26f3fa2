// The table of `nvidia-smi topo -m`: which link joins each two devices of a server, and a device
// and a NIC. Tabs or blanks between columns, with or without NICs, affinities, legends and escape
// sequences, as drivers of all ages print it.
#pragma once

#include "interop/topologies/server_wiring.h"

namespace dapple::interop {

bool is_nvidia_smi(std::string_view text);

/// Throws Error(BadInput) with line numbers: a row of another length, a word that is no kind of
/// link, a device twice or missing. Warns of NICs without columns, cells that differ between a row
/// and its column, affinities that are no ranges of CPUs. O(cells).
ServerWiring read_nvidia_smi(const ForeignFile& file, ImportNotes& notes);

}  // namespace dapple::interop
