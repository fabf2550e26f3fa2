// Slurm's topology.conf of the plugin topology/tree: which hosts are on which switch, and which
// switches on which. It has no speeds that mean anything.
#pragma once

#include <string>
#include <vector>

#include "interop/topologies/server_wiring.h"

namespace dapple::interop {

struct SlurmRack {
  std::string name;
  std::vector<std::string> hosts;
};

/// Leaf switches in the order of the tree. Of two levels below the top, those of one switch are a
/// pod; else there are no pods.
struct SlurmTree {
  std::vector<SlurmRack> racks;
  std::vector<std::int32_t> racks_of_pods;  // of each pod, in the order of the racks
};

bool is_slurm_topology(std::string_view text);

/// "tux[0-3,12],login" as names, "001" keeping its zeros. Nothing if it is malformed or more than
/// 65,536 names. O(names).
std::optional<std::vector<std::string>> expand_hosts(std::string_view list);

/// Throws Error(BadInput) with line numbers: other lines, a switch or a host twice, one that is not
/// there, a circle, no single top, leaves at different depths or more than two switches above a
/// leaf, the plugin topology/block. `nodes`, if given, are the hosts that count. O(hosts log
/// hosts).
SlurmTree read_slurm_topology(const ForeignFile& file, const std::optional<std::string>& nodes,
                              ImportNotes& notes);

}  // namespace dapple::interop
