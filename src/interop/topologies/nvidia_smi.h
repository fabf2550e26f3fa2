// Imports the table of `nvidia-smi topo -m`, which states the kind of link between any two devices
// and NICs of a server. All variations that drivers print are accepted: tabs or blanks between
// columns, with or without NICs, affinities, legends and escape sequences.
#pragma once

#include "interop/topologies/server_wiring.h"

namespace dapple::interop {

bool is_nvidia_smi(std::string_view text);

/// Returns the wiring of the server. Throws Error(BadInput) with line numbers for a row that is too
/// short, a word that is not a kind of link, and a device that is repeated or missing. Warns of
/// NICs without columns, cells that differ between a row and its column, and affinities that are
/// not ranges of CPUs. O(cells).
ServerWiring read_nvidia_smi(const ForeignFile& file, ImportNotes& notes);

}  // namespace dapple::interop
