// The topologies whose plans a trade-off compares: smaller clusters, and less memory on every
// device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/topology/description.h"

namespace dapple::app {

/// Returns the clusters of the same servers as `topology`, by rising number of devices, itself the
/// last: fewer servers of each kind, and fewer devices of one server where the servers are alike
/// and their devices interchangeable. Every number of servers up to 16 is taken, as long as these
/// make at most 64 clusters, and of more a few, each at most twice as many as the one before; of
/// devices of one server about half as many each time. With racks, servers of one rack or whole
/// racks are taken. Numbers of servers that are left out, and clusters that a file cannot describe,
/// add a warning to `left_out`. Throws Error(BadInput), naming
/// `source_name`, if there are pods, racks of several sizes, or several kinds of servers in racks.
std::vector<TopologyDescription> smaller_clusters(const TopologyDescription& topology,
                                                  const std::string& source_name,
                                                  std::vector<std::string>& left_out);

/// Returns the number of devices of all servers. O(kinds of servers).
std::int64_t device_count(const TopologyDescription& topology);

/// Returns the name of a topology with a remark; a name that would become too long for a file is
/// shortened.
std::string name_with(const std::string& name, const std::string& remark);

/// Returns "3 x node", or "4 of node" for some devices of a server.
std::string servers_text(const TopologyDescription& cluster, const TopologyDescription& whole);

/// Returns the topology with_memory_limit(), under a name that says so.
TopologyDescription named_with_memory_limit(const TopologyDescription& topology, Bytes limit);

}  // namespace dapple::app
