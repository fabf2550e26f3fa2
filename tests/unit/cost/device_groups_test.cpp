// Groups of devices worked by hand: what each device of a group has of ports, NICs and roots.

#include <catch2/catch.hpp>

#include "../../support/plans.h"
#include "../topology/meshes.h"
#include "dapple/cost/all_reduce.h"
#include "dapple/cost/device_groups.h"

namespace dapple {
namespace {

using namespace small;

const GroupedTopology& grouped_of(const std::variant<GroupedTopology, NoGroups>& result) {
  const auto* none = std::get_if<NoGroups>(&result);
  INFO((none == nullptr ? "" : none->reason));
  REQUIRE(none == nullptr);
  return std::get<GroupedTopology>(result);
}

std::string reason_of(const std::variant<GroupedTopology, NoGroups>& result) {
  const auto* none = std::get_if<NoGroups>(&result);
  return none == nullptr ? "" : none->place + ": " + none->reason;
}

Link nic(std::int64_t gigabytes, std::int64_t latency = 1) {
  return {bytes_per_ns(gigabytes), {latency}};
}

TEST_CASE("a group is a device named after all of its own") {
  const Topology topology(cluster({.servers = 2, .devices = 4}));
  const Topology grouped(grouped_of(group_devices(topology, {.tensor = 2})).description);
  REQUIRE(grouped.device_count() == 4);
  CHECK(grouped.device({1}).name == "node0:2-3");
  CHECK(grouped.find_device("node1:0-1") == DeviceIndex{2});
  CHECK(grouped.memory_limit({0}) == topology.memory_limit({0}));
}

TEST_CASE("each device of a group has an equal part of a NIC") {
  // Both groups use the only NIC of 8 bytes a nanosecond.
  const Topology topology(cluster({.servers = 2, .devices = 4, .nics = {nic(8)}}));
  const Topology grouped(grouped_of(group_devices(topology, {.tensor = 2})).description);
  CHECK(grouped.nic_of({0}) == grouped.nic_of({1}));
  CHECK(grouped.nic_link({0}, 0).bandwidth == bytes_per_ns(4));
}

TEST_CASE("NICs of one group become one, as fast as its narrowest part") {
  ClusterFigures figures{.servers = 2, .devices = 4};
  figures.nics = {nic(8, 1), nic(6, 5), nic(8, 1), nic(8, 2)};
  const Topology topology(cluster(figures));
  const Topology grouped(grouped_of(group_devices(topology, {.tensor = 2})).description);
  CHECK(grouped.nic_link({0}, 0).bandwidth == bytes_per_ns(6));
  CHECK(grouped.nic_link({0}, 0).latency == Duration{5});
  CHECK(grouped.nic_link({0}, 1).bandwidth == bytes_per_ns(8));
  const Topology whole(grouped_of(group_devices(topology, {.tensor = 4})).description);
  CHECK(whole.device_count() == 2);
  CHECK(whole.nic_link({0}, 0).bandwidth == bytes_per_ns(6));
}

TEST_CASE("a reduction between groups takes as long as that of each device's part on shared NICs") {
  // Two servers of two devices with one NIC of 2 bytes a nanosecond: both devices reduce 1,000
  // bytes at the same time, so that 2,000 bytes cross the NIC; a single ring of two would take
  // 1,000 ns.
  const Topology topology(cluster({.servers = 2, .devices = 2, .nics = {nic(2, 0)}}));
  const Topology grouped(grouped_of(group_devices(topology, {.tensor = 2})).description);
  CHECK(AllReduceModel({DeviceIndex{0}, DeviceIndex{1}}, grouped).time({1'000}) == Duration{1'000});
  CHECK(AllReduceModel({DeviceIndex{0}, DeviceIndex{2}}, topology).time({1'000}) == Duration{500});
}

TEST_CASE("the ring of a group is that of its devices") {
  TopologyDescription description =
      cluster({.servers = 2, .devices = 4, .inside = {bytes_per_ns(3), {11}}});
  for (const bool is_measured : {false, true}) {
    if (is_measured) {
      description.servers[0].bus_bandwidth.push_back(
          {.source = "", .servers = 1, .devices = 2, .points = {{{1'000}, {1'000'000'000}}}});
    }
    const Topology topology(description);
    const GroupRing ring = grouped_of(group_devices(topology, {.tensor = 2})).shape.rings[0];
    CHECK(ring.members == 2);
    CHECK(ring.measured.empty() != is_measured);
    const AllReduceModel model({DeviceIndex{0}, DeviceIndex{1}}, topology);
    for (const std::int64_t size : {1, 999, 1'000, 123'457}) {
      CHECK(collective_time(CollectiveKind::AllReduce, {size}, ring) == model.time({size}));
    }
  }
}

TEST_CASE("a link matrix, a remainder and NICs across groups allow no groups") {
  CHECK(reason_of(group_devices(Topology(cluster({.servers = 1, .devices = 3})), {.tensor = 2})) ==
        "/servers/0/devices: groups of 2 devices need a multiple of that in each server, and node "
        "has 3");
  CHECK(reason_of(group_devices(Topology(full_mesh(4, {bytes_per_ns(1), {}})), {.tensor = 2}))
            .starts_with("/servers/0/links: groups of devices need a switch within the server"));
  TopologyDescription description = cluster({.servers = 2, .devices = 4});
  description.servers[0].nics = {{.source = "", .link = nic(1), .devices = {0, 2}},
                                 {.source = "", .link = nic(1), .devices = {1, 3}}};
  CHECK(reason_of(group_devices(Topology(description), {.tensor = 2})) ==
        "/servers/0/nics: a group of 2 devices in node has several NICs, of which another group "
        "uses one");
}

TEST_CASE("servers with other links inside allow no groups") {
  TopologyDescription description = cluster({.servers = 1, .devices = 2});
  description.servers.push_back(description.servers.front());
  description.servers[1].name = "other";
  description.servers[1].links.port = {bytes_per_ns(2), {}};
  CHECK(reason_of(group_devices(Topology(description), {.tensor = 2})) ==
        "/servers/1/links: groups of devices need the same links within every server, and those of "
        "other are not those of node");
}

TEST_CASE("PCIe roots and uplinks are divided, stated ones and oversubscribed ones") {
  TopologyDescription description = cluster({.servers = 4, .devices = 4, .nics = {nic(8), nic(8)}});
  description.servers[0].pcie_roots = {
      {.source = "", .link = {bytes_per_ns(10), {2}}, .devices = {0, 1}, .nics = {0}},
      {.source = "", .link = {bytes_per_ns(10), {2}}, .devices = {2, 3}, .nics = {1}}};
  UplinkGroup racks;
  racks.count = 2;
  racks.members = 2;
  racks.bandwidth = bytes_per_ns(6);
  description.racks = {racks};
  const Topology topology(description);
  const auto result = group_devices(topology, {.tensor = 2});
  const TopologyDescription& grouped = grouped_of(result).description;
  CHECK(grouped.servers[0].pcie_roots[0].link.bandwidth == bytes_per_ns(5));
  CHECK(grouped.servers[0].pcie_roots[1].devices == std::vector<std::int32_t>{1});
  CHECK(grouped.servers[0].pcie_roots[1].nics == std::vector<std::int32_t>{1});
  CHECK(grouped.racks[0].bandwidth == bytes_per_ns(3));
  CHECK(Topology(grouped).device_count() == 8);
  CHECK(
      reason_of(group_devices(topology, {.tensor = 4})) ==
      "/servers/0/pcie_roots: the devices of a group of 4 in node are below different PCIe roots");
  description.racks[0].bandwidth.reset();
  description.racks[0].oversubscription = {2 * kOne.billionths};
  const auto by_nics = group_devices(Topology(description), {.tensor = 2});
  const Topology over(grouped_of(by_nics).description);
  // Two servers of two NICs of 8, oversubscribed twofold, of which each device has half.
  CHECK(over.way_between({0}, {2}).bandwidth == bytes_per_ns(8));
  // Unequal NICs of one group count whole, although the group follows the narrower one.
  description.servers[0].nics[1].link = nic(2);
  description.servers[0].nics[0].devices = {0, 2};
  description.servers[0].nics[1].devices = {1, 3};
  description.servers[0].pcie_roots.clear();
  const auto unequal = group_devices(Topology(description), {.tensor = 4});
  CHECK(Topology(grouped_of(unequal).description).way_between({0}, {2}).bandwidth ==
        Bandwidth{2'500'000'000});
}

TEST_CASE("context ranks are tensor groups apart, and the copies of parameters are beside them") {
  const Topology topology(cluster({.servers = 2, .devices = 8, .inside = {bytes_per_ns(3), {11}}}));
  const auto result = group_devices(topology, {.tensor = 2, .context = 2});
  const GroupShape& shape = grouped_of(result).shape;
  CHECK(grouped_of(result).description.group_size == 4);
  CHECK(shape.ring(CollectiveMembers::Tensor).members == 2);
  CHECK(shape.ring(CollectiveMembers::Context).members == 2);
  CHECK(shape.ring(CollectiveMembers::Experts).members == 1);
  CHECK(shape.copies.members == 2);
  CHECK(shape.copies.bandwidth == bytes_per_ns(3));
  CHECK(shape.expert_copies.members == 2);
  CHECK(shape.replicas == 1);
}

TEST_CASE("expert groups use the devices of several data-parallel ranks") {
  const Topology topology(cluster({.servers = 1, .devices = 8}));
  // Two tensor ranks, but whole experts, of which each of the eight devices has different ones.
  const auto result = group_devices(topology, {.tensor = 2, .experts = 8, .expert_tensor = 1});
  const GroupShape& shape = grouped_of(result).shape;
  CHECK(shape.replicas == 4);
  CHECK(shape.copies.members == 4);
  CHECK(shape.expert_copies.members == 1);
  CHECK(shape.ring(CollectiveMembers::Experts).members == 8);
  CHECK(shape.ring(CollectiveMembers::Experts).members_in_server == 8);
}

TEST_CASE("groups of whole servers share NICs among the rings that pass them") {
  ClusterFigures figures{.servers = 4, .devices = 4, .inside = {bytes_per_ns(100), {1}}};
  figures.nics = {nic(8, 3), nic(8, 3)};
  const Topology topology(cluster(figures));
  const auto result = group_devices(topology, {.tensor = 2, .full_shards = 4});
  const GroupedTopology& grouped = grouped_of(result);
  const Topology made(grouped.description);
  REQUIRE(made.device_count() == 2);
  CHECK(made.device({1}).name == "node[2-3]:0-3");
  CHECK(made.nic_link({0}, 0).bandwidth == bytes_per_ns(4));
  const GroupRing& copies = grouped.shape.copies;
  CHECK(copies.members == 4);
  CHECK(copies.members_in_server == 2);
  // Two rings pass both NICs of 8 bytes a nanosecond; four devices send at once.
  CHECK(copies.bandwidth == bytes_per_ns(8));
  CHECK(copies.between_servers == bytes_per_ns(4));
  CHECK(copies.latency == Duration{6});
  // Each of the four devices has 200 of its 800 bytes for each other one: 200 within its server,
  // 400 between servers.
  CHECK(collective_time(CollectiveKind::AllToAll, {800}, copies) == Duration{100 + 6});
  CHECK(grouped.shape.replicas == 4);
}

TEST_CASE("tensor-parallel ranks on several servers reduce by a ring through their NICs") {
  ClusterFigures figures{.servers = 4, .devices = 4, .inside = {bytes_per_ns(100), {1}}};
  figures.nics = {nic(8, 3), nic(8, 3)};
  const Topology topology(cluster(figures));
  const auto result = group_devices(topology, {.tensor = 8});
  const GroupedTopology& grouped = grouped_of(result);
  const Topology made(grouped.description);
  REQUIRE(made.device_count() == 2);
  // One ring passes both NICs of each server.
  const GroupRing& tensor = grouped.shape.ring(CollectiveMembers::Tensor);
  CHECK(tensor.members == 8);
  CHECK(tensor.members_in_server == 4);
  CHECK(tensor.bandwidth == bytes_per_ns(16));
  // 14 rounds of 1,000 of 8,000 bytes.
  CHECK(collective_time(CollectiveKind::AllReduce, {8'000}, tensor) == Duration{875 + 14 * 6});
  CHECK(grouped.shape.copies.members == 1);
  CHECK(reason_of(group_devices(topology, {.tensor = 6})) ==
        "/servers/0/devices: groups of 6 devices need a part of a server or whole ones, and node "
        "has 4");
}

TEST_CASE("groups of servers need as many of them everywhere") {
  CHECK(reason_of(
            group_devices(Topology(cluster({.servers = 3, .devices = 2})), {.full_shards = 4})) ==
        "/servers/0/count: groups of 2 servers need a multiple of that, and there are 3 node");
  CHECK(reason_of(
            group_devices(Topology(cluster({.servers = 2, .devices = 4})), {.full_shards = 6})) ==
        "/servers/0/devices: groups of 6 devices need a part of a server or whole ones, and node "
        "has 4");
  TopologyDescription description = cluster({.servers = 6, .devices = 2});
  UplinkGroup racks;
  racks.count = 2;
  racks.members = 3;
  racks.bandwidth = bytes_per_ns(6);
  description.racks = {racks};
  CHECK(
      reason_of(group_devices(Topology(description), {.full_shards = 4})) ==
      "/racks/0/servers: groups of 2 servers need a multiple of that in each rack, and one has 3");
}

TEST_CASE("groups are refused where a layer has no variant") {
  ModelProfile profile = model_of({{.forward = 1}});
  const auto none = group_inputs(profile, Topology(cluster({.servers = 1, .devices = 2})),
                                 Parallelism{.tensor = 2});
  REQUIRE(std::holds_alternative<NoGroups>(none));
  CHECK(std::get<NoGroups>(none).reason == "layer layer0 has no variant for tensor 2");
}

}  // namespace
}  // namespace dapple
