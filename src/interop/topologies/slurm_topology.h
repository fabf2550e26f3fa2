// Imports Slurm's topology.conf for the plugin topology/tree, which lists the hosts and the
// switches below each switch. Its LinkSpeed has no meaning and is ignored.
#pragma once

#include <string>
#include <vector>

#include "interop/topologies/server_wiring.h"

namespace dapple::interop {

struct SlurmRack {
  std::string name;
  std::vector<std::string> hosts;
};

/// The racks and pods of a tree of switches.
struct SlurmTree {
  // The leaf switches with their hosts, in the order of the tree.
  std::vector<SlurmRack> racks;
  // The number of racks of each pod, in the order of the racks. A pod is a switch between the
  // leaves and the top; without such a level there are no pods.
  std::vector<std::int32_t> racks_of_pods;
};

bool is_slurm_topology(std::string_view text);

/// Expands a list such as "tux[0-3,12],login" to names; numbers like "001" keep their leading
/// zeros. Returns nothing if the list is malformed or has more than 65,536 names. O(names).
std::optional<std::vector<std::string>> expand_hosts(std::string_view list);

/// Reads the tree; if `nodes` is given, only with those hosts. Throws Error(BadInput) with line
/// numbers for unknown lines, repeated or missing switches or hosts, cycles, several switches at
/// the top, leaves at different depths, more than two switches above a leaf, and the plugin
/// topology/block, and Error(Usage) if `nodes` is malformed. O(hosts log hosts).
SlurmTree read_slurm_topology(const ForeignFile& file, const std::optional<std::string>& nodes,
                              ImportNotes& notes);

}  // namespace dapple::interop
