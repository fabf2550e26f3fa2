// Imports PipeDream's profile graphs, which are also the format of DAPPLE's published profiles.
#pragma once

#include <string>
#include <string_view>

#include "dapple/interop/profiles/foreign_profile.h"

namespace dapple::interop {

/// Whether the text looks like a PipeDream graph: its first line that is not blank begins as a node
/// line does.
bool is_pipedream_graph(std::string_view text);

/// Imports a graph as a profile. The order of the layers does not depend on the order of the lines:
/// among the nodes whose inputs are placed, the next is the one that leaves the fewest bytes alive,
/// with ties broken by the lowest number; a node without inputs stands immediately before its first
/// consumer. `Input` nodes without parameters or inputs of their own are left out together with
/// their outgoing edges, as are `__getitem__` sinks that neither take time nor have parameters. The
/// device of the profile is empty if the options do not name it. Throws Error(BadInput) with line
/// numbers, or Error(Usage) naming every option that is missing or would have no effect. O((nodes +
/// edges) log nodes).
ImportedProfile import_pipedream_graph(std::string_view text, const std::string& source_name,
                                       const ForeignProfileOptions& options);

}  // namespace dapple::interop
