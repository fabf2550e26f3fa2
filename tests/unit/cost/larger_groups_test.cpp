// Replicas of several devices each, worked by hand; links of one byte per nanosecond.

#include "dapple/cost/larger_groups.h"

#include <catch2/catch.hpp>

#include "../../support/plans.h"

namespace dapple {
namespace {

using namespace small;

std::vector<DeviceIndex> members(std::initializer_list<std::int32_t> numbers) {
  std::vector<DeviceIndex> result;
  for (const std::int32_t number : numbers) result.push_back({number});
  return result;
}

std::string carried_by(const AllReduceCost& cost, const Topology& topology) {
  std::string text;
  for (const auto& [port, size] : cost.ports()) {
    if (!text.empty()) text += ", ";
    text += topology.ports()[port.position()].name + " " + std::to_string(size.count);
  }
  return text;
}

TEST_CASE("the devices of groups in one server reduce beside each other") {
  // Two groups of two: every device sends 100 bytes to the other group and gets as many.
  const Topology topology(cluster({.servers = 1, .devices = 4, .inside = {bytes_per_ns(1), {3}}}));
  REQUIRE(LargerGroups::fault(topology, 2).empty());
  const AllReduceCost cost = LargerGroups(topology, 2).reduction(members({0, 1, 2, 3})).cost({100});
  CHECK(cost.time.ns == 106);
  CHECK(carried_by(cost, topology) ==
        "node0:0 out 100, node0:0 in 100, node0:1 out 100, node0:1 in 100, "
        "node0:2 out 100, node0:2 in 100, node0:3 out 100, node0:3 in 100");
}

TEST_CASE("the devices of a group share a NIC that they reduce over") {
  // Two servers of one NIC with half a byte per nanosecond, of which each device of a pair has a
  // quarter: 100 bytes take 400 ns, and the NIC carries 200.
  TopologyDescription description = cluster({.servers = 2, .devices = 2});
  for (ServerGroup& group : description.servers) {
    group.nics.resize(1);
    group.nics.front().link = {{500'000'000}, {}};
  }
  const Topology topology(std::move(description));
  REQUIRE(LargerGroups::fault(topology, 2).empty());
  const AllReduceCost cost = LargerGroups(topology, 2).reduction(members({0, 1, 2, 3})).cost({100});
  CHECK(cost.busy.count == 400 * 1024);
  for (const auto& [port, size] : cost.ports()) {
    CAPTURE(topology.ports()[port.position()].name);
    CHECK(size.count == 200);
  }
  CHECK(cost.ports().size() == 4);
}

TEST_CASE("the devices of a group share the uplinks that they reduce over") {
  // Three servers, the third one in another rack: each NIC and each uplink carries all of both
  // devices, 4 / 3 of 150 bytes.
  TopologyDescription description = cluster({.servers = 3, .devices = 2});
  UplinkGroup rack;
  rack.bandwidth = bytes_per_ns(1);
  rack.count = 1;
  rack.members = 2;
  description.racks = {rack, rack};
  description.racks.back().members = 1;
  const Topology topology(std::move(description));
  REQUIRE(LargerGroups::fault(topology, 2).empty());
  const AllReduceCost cost =
      LargerGroups(topology, 2).reduction(members({0, 1, 2, 3, 4, 5})).cost({150});
  CHECK(cost.ports().size() == 6 + 4);
  for (const auto& [port, size] : cost.ports()) {
    CAPTURE(topology.ports()[port.position()].name);
    CHECK(size.count == 400);
  }
}

TEST_CASE("groups that do not divide a server, or share a part of its NICs, are none") {
  const Topology three(cluster({.servers = 1, .devices = 3}));
  CHECK(LargerGroups::fault(three, 2) ==
        "groups of another size have 2 of its devices, which do not divide a server");
  TopologyDescription description = cluster({.servers = 2, .devices = 4});
  for (ServerGroup& group : description.servers) {
    group.nics.resize(2, group.nics.front());
    group.nics[0].devices = {0, 2};
    group.nics[1].devices = {1, 3};
  }
  CHECK(LargerGroups::fault(Topology(std::move(description)), 2) ==
        "a group of 2 devices in node has several NICs, of which another group uses one");
}

}  // namespace
}  // namespace dapple
