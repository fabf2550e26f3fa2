// What routes have in common beside devices' and NICs' own ports: PCIe roots, and the uplinks of
// racks and pods.

#include <catch2/catch.hpp>

#include "meshes.h"

#include "dapple/topology/topology.h"

namespace dapple {
namespace {

using meshes::kGigabyte;
using meshes::link;
using meshes::port_names;
using Names = std::vector<std::string>;

PcieRoot root(std::vector<std::int32_t> devices, std::vector<std::int32_t> nics,
              std::int64_t gigabytes) {
  return {.source = "",
          .link = link(gigabytes, 1),
          .devices = std::move(devices),
          .nics = std::move(nics)};
}

/// Two servers of eight with one NIC, below the second of two roots.
TopologyDescription with_roots() {
  TopologyDescription description = meshes::two_by_eight();
  description.servers[0].pcie_roots = {root({0, 1, 2, 3}, {}, 2), root({4, 5, 6, 7}, {0}, 16)};
  return description;
}

/// Four devices on the host path alone, below two roots.
TopologyDescription pcie_server() {
  ServerGroup group = meshes::mesh_group({{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}});
  group.pcie_roots = {root({0, 1}, {}, 6), root({2, 3}, {}, 7)};
  return meshes::one_group(group);
}

UplinkGroup uplinks(std::int32_t count, std::int32_t members, std::int64_t gigabytes) {
  UplinkGroup group;
  group.count = count;
  group.members = members;
  group.bandwidth = Bandwidth{gigabytes * kGigabyte};
  group.latency = {1'000};
  return group;
}

/// `servers` servers of eight, three gigabytes per second out of each.
TopologyDescription with_racks(std::int32_t servers, std::vector<UplinkGroup> racks,
                               std::vector<UplinkGroup> pods = {}) {
  TopologyDescription description = meshes::two_by_eight();
  description.servers[0].count = servers;
  description.racks = std::move(racks);
  description.pods = std::move(pods);
  return description;
}

TEST_CASE("A device reaches a NIC below another PCIe root through the ports of both") {
  const Topology topology(with_roots());
  const Route far = topology.route({0}, {9});
  CHECK(port_names(topology, far) == Names{"node0 root0 out", "node0 root1 in", "node0 nic0 out",
                                           "node1 nic0 in", "node1 root1 out", "node1 root0 in"});
  CHECK(far.latency == Duration{15'000 + 2'000 + 15'000 + 4 * 1'000});
  CHECK(far.bandwidth == Bandwidth{2 * kGigabyte});  // of root 0
  const Route half = topology.route({4}, {9});
  CHECK(port_names(topology, half) ==
        Names{"node0 nic0 out", "node1 nic0 in", "node1 root1 out", "node1 root0 in"});
}

TEST_CASE("What stays below a PCIe root takes none of its ports") {
  const Topology topology(with_roots());
  const Route route = topology.route({4}, {15});
  CHECK(port_names(topology, route) == Names{"node0 nic0 out", "node1 nic0 in"});
  CHECK(topology.way_to_nic({4}).ports.empty());
  CHECK(topology.way_to_nic({4}).bandwidth == Bandwidth{kMaxCount});
}

TEST_CASE("Over a server's switch no PCIe root is passed") {
  const Topology topology(with_roots());
  CHECK(port_names(topology, topology.route({0}, {7})) == Names{"node0:0 out", "node0:7 in"});
}

TEST_CASE("The host path passes the PCIe roots of both ends where they differ") {
  const Topology topology(pcie_server());
  CHECK(port_names(topology, topology.route({0}, {1})) == Names{"node0:0 out", "node0:1 in"});
  const Route route = topology.route({1}, {2});
  CHECK(port_names(topology, route) ==
        Names{"node0:1 out", "node0 root0 out", "node0 root1 in", "node0:2 in"});
  CHECK(route.latency == Duration{9'000 + 2 * 1'000});
  CHECK(route.bandwidth == Bandwidth{6 * kGigabyte});
}

TEST_CASE("A direct link passes no PCIe root") {
  ServerGroup group = meshes::mesh_group({{0, 1}, {1, 0}});
  group.pcie_roots = {root({0}, {}, 1), root({1}, {}, 1)};
  const Topology topology(meshes::one_group(group));
  CHECK(port_names(topology, topology.route({0}, {1})) == Names{"node0:0>node0:1"});
}

TEST_CASE("Devices are filled along a way that crosses PCIe roots as rarely as it can") {
  ServerGroup group = meshes::mesh_group({{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}});
  group.pcie_roots = {root({0, 2}, {}, 6), root({1, 3}, {}, 6)};
  const Topology topology(meshes::one_group(group));
  // Hops below a root are 10 GB/s wide, one across is 6: 0 2 | 1 3 crosses once.
  CHECK(topology.fill_order({0}) == std::vector<DeviceIndex>{{0}, {2}, {1}, {3}});
}

TEST_CASE("Between racks a route takes the uplink out and the other's in") {
  const Topology topology(with_racks(4, {uplinks(2, 2, 2)}));
  CHECK(port_names(topology, topology.route({0}, {8})) == Names{"node0 nic0 out", "node1 nic0 in"});
  const Route route = topology.route({8}, {16});
  CHECK(port_names(topology, route) ==
        Names{"node1 nic0 out", "rack0 out", "rack1 in", "node2 nic0 in"});
  CHECK(route.latency == Duration{15'000 + 2'000 + 15'000 + 2 * 1'000});
  CHECK(route.bandwidth == Bandwidth{2 * kGigabyte});
}

TEST_CASE("Between pods a route takes the uplinks of both racks and both pods") {
  const Topology topology(with_racks(4, {uplinks(4, 1, 5)}, {uplinks(2, 2, 1)}));
  CHECK(port_names(topology, topology.route({0}, {8})) ==
        Names{"node0 nic0 out", "rack0 out", "rack1 in", "node1 nic0 in"});
  const Route route = topology.route({8}, {24});
  CHECK(port_names(topology, route) ==
        Names{"node1 nic0 out", "rack1 out", "pod0 out", "pod1 in", "rack3 in", "node3 nic0 in"});
  CHECK(route.latency == Duration{15'000 + 2'000 + 15'000 + 4 * 1'000});
  CHECK(route.bandwidth == Bandwidth{1 * kGigabyte});
}

TEST_CASE("An oversubscribed uplink is as wide as all below it together, divided") {
  UplinkGroup rack = uplinks(2, 2, 0);
  rack.bandwidth.reset();
  rack.oversubscription = {1'500'000'000};
  UplinkGroup pod = rack;
  pod.members = 1;
  pod.oversubscription = {4'000'000'000};
  const Topology topology(with_racks(4, {rack}, {pod}));
  const auto bandwidth = [&](const std::string& name) {
    for (const Port& port : topology.ports()) {
      if (port.name == name) return port.bandwidth.bytes_per_second;
    }
    return std::int64_t{-1};
  };
  CHECK(bandwidth("rack1 out") == 4 * kGigabyte);  // 2 * 3 / 1.5
  CHECK(bandwidth("rack1 in") == 4 * kGigabyte);
  CHECK(bandwidth("pod0 in") == 1 * kGigabyte);  // 4 / 4
}

TEST_CASE("Servers have the same uplinks in one rack, or alone in racks alike of one pod") {
  const Topology topology(with_racks(6, {uplinks(1, 2, 5), uplinks(3, 1, 5), uplinks(1, 1, 6)},
                                     {uplinks(1, 3, 9), uplinks(1, 2, 9)}));
  CHECK(topology.have_same_uplinks({0}, {1}));
  CHECK_FALSE(topology.have_same_uplinks({1}, {2}));  // not alone
  CHECK(topology.have_same_uplinks({2}, {3}));
  CHECK_FALSE(topology.have_same_uplinks({3}, {4}));  // of another pod
  CHECK_FALSE(topology.have_same_uplinks({4}, {5}));  // a wider uplink
  CHECK(Topology(meshes::two_by_eight()).have_same_uplinks({0}, {1}));
}

}  // namespace
TEST_CASE("Devices may be moved by whole servers of one kind, where there are no racks") {
  TopologyDescription description = meshes::two_by_eight();
  description.servers[0].count = 3;
  ServerGroup others = description.servers[0];
  others.name = "other";
  description.servers.push_back(others);
  const Topology topology(description);
  CHECK(topology.offset_from_alike({3}, {7}) == 0);
  CHECK(topology.offset_from_alike({11}, {20}) == 8);
  CHECK(topology.offset_from_alike({20}, {20}) == 16);
  CHECK(topology.offset_from_alike({20}, {24}) == 0);  // of two kinds
  CHECK(topology.offset_from_alike({30}, {32}) == 0);
  CHECK(topology.offset_from_alike({32}, {33}) == 8);
  CHECK(Topology(with_racks(4, {uplinks(2, 2, 5)})).offset_from_alike({8}, {9}) == 0);
}

}  // namespace dapple
