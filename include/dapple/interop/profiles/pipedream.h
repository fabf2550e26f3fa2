// PipeDream's profile graph (also the format of DAPPLE's published profiles).
#pragma once

#include <string>
#include <string_view>

#include "dapple/interop/profiles/foreign_profile.h"

namespace dapple::interop {

/// True if the text looks like a PipeDream graph (its first line is a node line).
bool is_pipedream_graph(std::string_view text);

/// Layers in a deterministic order that does not depend on the order of the lines: among the nodes
/// whose inputs are placed, the one that leaves the fewest bytes alive, then the lowest number; a
/// node without inputs stands right before its first consumer. `Input` nodes without parameters or
/// inputs of their own carry no work and are left out, with the edges that leave them;
/// `__getitem__` sinks without work likewise. The device is empty if it is not given. Throws
/// Error(BadInput) with line numbers, or Error(Usage) naming every option that is missing.
/// O((nodes + edges) log nodes).
ImportedProfile import_pipedream_graph(std::string_view text, const std::string& source_name,
                                       const ForeignProfileOptions& options);

}  // namespace dapple::interop
