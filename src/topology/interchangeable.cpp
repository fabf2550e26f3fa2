#include <algorithm>

#include "dapple/topology/topology.h"

namespace dapple {
namespace {

/// Whether no other device of its server uses its NIC.
bool has_nic_alone(const Topology& topology, DeviceIndex device) {
  const Server& server = topology.server(topology.device(device).server);
  std::int32_t users = 0;
  for (std::int32_t i = 0; i < server.device_count; ++i) {
    const DeviceIndex other{server.first_device.value + i};
    if (topology.nic_of(other) == topology.nic_of(device)) ++users;
  }
  return users == 1;
}

/// Whether devices `a` and `b`, `a` in a server of `group`, are interchangeable.
bool are_interchangeable(const ServerGroup& group, const Topology& topology, DeviceIndex a,
                         DeviceIndex b) {
  const ServerIndex server = topology.device(a).server;
  if (server != topology.device(b).server) {
    // Servers of a single device differ only by their group and their place in the network.
    const ServerIndex other = topology.device(b).server;
    return group.devices == 1 && topology.server(server).group == topology.server(other).group &&
           topology.have_same_uplinks(server, other);
  }
  if (group.links.kind == ServerLinks::Kind::Matrix) {
    // Without direct links, all devices use the host path, and only PCIe roots distinguish them.
    const bool has_links = (group.links.matrix.array() != kNoLink).any();
    if (has_links || topology.route(a, b).ports.size() > 2) return false;
  }
  // In a single server no NIC is used.
  if (topology.server_count() == 1 || group.nics.empty()) return true;
  if (topology.way_to_nic(a).ports != topology.way_to_nic(b).ports) return false;
  const std::int32_t nic_of_a = topology.nic_of(a);
  const std::int32_t nic_of_b = topology.nic_of(b);
  if (nic_of_a == nic_of_b) return true;
  return topology.nic_link(server, nic_of_a) == topology.nic_link(server, nic_of_b) &&
         has_nic_alone(topology, a) && has_nic_alone(topology, b);
}

}  // namespace

void Topology::find_interchangeable() {
  for (std::int32_t d = 0; d < device_count(); ++d) {
    const DeviceIndex device_index{d};
    const ServerGroup& group = group_of(device(device_index).server);
    const bool joins =
        d > 0 && are_interchangeable(group, *this, device_index.previous(), device_index);
    first_interchangeable_.push_back(joins ? first_interchangeable_.back() : device_index);
  }
}

}  // namespace dapple
