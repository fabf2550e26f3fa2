#include <catch2/catch.hpp>
#include <cstdint>
#include <span>

#include "meshes.h"

#include "dapple/core/error.h"
#include "dapple/topology/topology.h"

namespace dapple {
namespace {

using meshes::kGigabyte;
using meshes::link;
using meshes::port_names;
using Names = std::vector<std::string>;

TEST_CASE("A message takes the latency and its bytes at the bandwidth, rounded up") {
  // 5,000 + 10^9 / 130 * 10^-9 s: 1,000,000,000 / 130 = 7,692,307.69 ns
  CHECK(transfer_time(Bytes{1'000'000'000}, link(130, 5)) == Duration{7'697'308});
  CHECK(transfer_time(Bytes{130}, link(130, 5)) == Duration{5'001});
  CHECK(transfer_time(Bytes{131}, link(130, 5)) == Duration{5'002});
}

TEST_CASE("Nothing to send takes no time, not even the latency") {
  CHECK(transfer_time(Bytes{0}, link(130, 5)) == Duration{0});
}

TEST_CASE("Servers and devices are numbered, server by server, even a single one") {
  const Topology topology(meshes::two_by_eight());
  CHECK(topology.device_count() == 16);
  CHECK(topology.server_count() == 2);
  CHECK(topology.server({1}).name == "node1");
  CHECK(topology.server({1}).first_device == DeviceIndex{8});
  CHECK(topology.device({11}).name == "node1:3");
  CHECK(topology.device({11}).server == ServerIndex{1});
  CHECK(topology.device({11}).number == 3);
  CHECK(topology.find_device("node1:3") == DeviceIndex{11});
  CHECK(topology.find_device("node2:0") == std::nullopt);
  CHECK(topology.find_device("node1:03") == std::nullopt);
  CHECK(Topology(meshes::one_group(meshes::mesh_group({{0, 1}, {1, 0}}))).device({0}).name ==
        "node0:0");
}

TEST_CASE("A plan may use a device's memory less what is reserved") {
  const Topology topology(meshes::two_by_eight());
  CHECK(topology.memory_limit({0}) == Bytes{15LL << 30});
  CHECK(topology.kind_of({0}).name == "V100");
}

TEST_CASE("Inside a switched server a route takes the two devices' ports") {
  const Topology topology(meshes::two_by_eight());
  const Route route = topology.route({8}, {11});
  CHECK(port_names(topology, route) == Names{"node1:0 out", "node1:3 in"});
  CHECK(route.latency == Duration{5'000});
  CHECK(route.bandwidth == Bandwidth{130 * kGigabyte});
  CHECK(route.ports.front() == topology.device_out({8}));
  CHECK(route.ports.back() == topology.device_in({11}));
}

TEST_CASE("Across servers a route takes the two NICs, narrowed by the network") {
  const Topology topology(meshes::two_by_eight());
  const Route route = topology.route({3}, {11});
  CHECK(port_names(topology, route) == Names{"node0 nic0 out", "node1 nic0 in"});
  CHECK(route.latency == Duration{15'000 + 2'000 + 15'000});
  CHECK(route.bandwidth == Bandwidth{3 * kGigabyte});  // the network's port, not the NIC's 3.125
  CHECK(topology.nic_link({0}, 0) == Link{{3 * kGigabyte}, {15'000}});
}

TEST_CASE("NICs together send what each sends through the network's port") {
  TopologyDescription description = meshes::two_by_eight();
  ServerGroup& group = description.servers.front();
  group.nics = {{.source = "", .link = meshes::link(2, 15), .devices = {}},
                {.source = "", .link = meshes::link(5, 15), .devices = {}},
                {.source = "", .link = meshes::link(1, 15), .devices = {}},
                {.source = "", .link = meshes::link(4, 15), .devices = {}}};
  const Topology topology(description);
  CHECK(topology.nics_together({1}) == Bandwidth{(2 + 3 + 1 + 3) * kGigabyte});
  const std::int32_t some[] = {2, 1};
  CHECK(topology.nics_together({1}, some) == Bandwidth{(3 + 1) * kGigabyte});
  CHECK(topology.nics_together({1}, std::span<const std::int32_t>{}) == Bandwidth{});
}

TEST_CASE("On a link matrix a route is the direct link, or the host path where there is none") {
  const Topology topology(meshes::one_group(meshes::mesh_group(meshes::kDgx1)));
  const Route direct = topology.route({0}, {3});
  CHECK(port_names(topology, direct) == Names{"node0:0>node0:3"});
  CHECK(direct.bandwidth == Bandwidth{50 * kGigabyte});
  CHECK(direct.latency == Duration{2'000});
  const Route back = topology.route({3}, {0});
  CHECK(port_names(topology, back) == Names{"node0:3>node0:0"});
  const Route host = topology.route({0}, {5});
  CHECK(port_names(topology, host) == Names{"node0:0 out", "node0:5 in"});
  CHECK(host.bandwidth == Bandwidth{10 * kGigabyte});
  CHECK(host.latency == Duration{9'000});
  // 16 ends of the host path, and 32 directed links: 16 pairs of GPUs are bonded.
  CHECK(topology.ports().size() == 48);
}

TEST_CASE("A link in one direction only is used in that direction only") {
  ServerGroup group = meshes::mesh_group({{0, 2}, {0, 0}});
  const Topology topology(meshes::one_group(group));
  CHECK(topology.route({0}, {1}).bandwidth == Bandwidth{50 * kGigabyte});
  CHECK(topology.route({1}, {0}).bandwidth == Bandwidth{10 * kGigabyte});
  CHECK(port_names(topology, topology.route({1}, {0})) == Names{"node0:1 out", "node0:0 in"});
}

TEST_CASE("A route from a device to itself, or a port that is not there, is the caller's bug") {
  ServerGroup group = meshes::mesh_group({{0, 1}, {1, 0}});
  group.links.host_path.reset();
  const Topology topology(meshes::one_group(group));
  CHECK_THROWS_AS(topology.route({1}, {1}), Bug);
  CHECK_THROWS_AS(topology.device_out({0}), Bug);
  CHECK_THROWS_AS(topology.nic_of({0}), Bug);
}

TEST_CASE("Servers of one device need no links and get no device ports") {
  TopologyDescription description = meshes::two_by_eight();
  description.servers[0].devices = 1;
  description.servers[0].count = 3;
  description.servers[0].links = {};
  const Topology topology(description);
  CHECK(topology.device({2}).name == "node2:0");
  CHECK(topology.ports().size() == 6);
  CHECK(port_names(topology, topology.route({2}, {0})) == Names{"node2 nic0 out", "node0 nic0 in"});
}

TEST_CASE("NICs without lists are dealt in blocks") {
  TopologyDescription description = meshes::two_by_eight();
  const Nic nic = description.servers[0].nics.front();
  description.servers[0].nics = {nic, nic, nic};
  const Topology topology(description);
  std::vector<std::int32_t> nics;
  for (std::int32_t device = 8; device < 16; ++device) nics.push_back(topology.nic_of({device}));
  // floor(3 d / 8) for d = 0..7
  CHECK(nics == std::vector<std::int32_t>{0, 0, 0, 1, 1, 1, 2, 2});
  const Route route = topology.route({0}, {15});
  CHECK(std::vector<PortIndex>(route.ports.begin(), route.ports.end()) ==
        std::vector<PortIndex>{topology.nic_out({0}, 0), topology.nic_in({1}, 2)});
}

TEST_CASE("NICs with lists serve the devices that they name") {
  TopologyDescription description = meshes::two_by_eight();
  Nic nic = description.servers[0].nics.front();
  nic.devices = {1, 3, 5, 7};
  description.servers[0].nics = {nic};
  nic.devices = {6, 4, 2, 0};
  nic.link.bandwidth = {1'000'000'000};
  description.servers[0].nics.push_back(nic);
  const Topology topology(description);
  CHECK(topology.nic_of({7}) == 0);
  CHECK(topology.nic_of({12}) == 1);
  CHECK(topology.route({7}, {12}).bandwidth == Bandwidth{1 * kGigabyte});
  CHECK(topology.route({7}, {13}).bandwidth == Bandwidth{3 * kGigabyte});
}

TEST_CASE("Groups of servers of different kinds keep their own devices and links") {
  TopologyDescription description = meshes::two_by_eight();
  ServerGroup mesh = meshes::mesh_group(meshes::kDgx1);
  mesh.name = "dgx";
  mesh.count = 2;
  mesh.device = "other";
  mesh.nics = description.servers[0].nics;
  description.servers.push_back(mesh);
  DeviceKind other = meshes::v100();
  other.name = "other";
  other.memory = {32LL << 30};
  description.devices.push_back(other);
  const Topology topology(description);
  CHECK(topology.device_count() == 32);
  CHECK(topology.device({31}).name == "dgx1:7");
  CHECK(topology.memory_limit({31}) == Bytes{31LL << 30});
  CHECK(topology.memory_limit({15}) == Bytes{15LL << 30});
  CHECK(topology.group_of({3}).name == "dgx");
  CHECK(port_names(topology, topology.route({24}, {27})) == Names{"dgx1:0>dgx1:3"});
  CHECK(port_names(topology, topology.route({0}, {31})) == Names{"node0 nic0 out", "dgx1 nic0 in"});
}

}  // namespace
}  // namespace dapple
