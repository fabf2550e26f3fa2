#include "dapple/search/placement/placement_space.h"

#include <catch2/catch.hpp>

#include "../../../support/plans.h"

using namespace dapple;

namespace {

std::vector<std::int32_t> sizes_of(const std::vector<search::DevicePool>& pools) {
  std::vector<std::int32_t> sizes;
  for (const search::DevicePool& pool : pools) sizes.push_back(pool.size);
  return sizes;
}

Nic nic_of(std::vector<std::int32_t> devices) {
  Nic nic;
  nic.link = {{1'000'000'000}, {1000}};
  nic.devices = std::move(devices);
  return nic;
}

}  // namespace

TEST_CASE("devices of one switch server and one NIC are one pool") {
  CHECK(sizes_of(search::device_pools(Topology(small::cluster({.servers = 2, .devices = 4})))) ==
        std::vector<std::int32_t>{4, 4});
}

TEST_CASE("alike servers of one device are one pool, for only their number matters") {
  CHECK(sizes_of(search::device_pools(Topology(small::cluster({.servers = 16, .devices = 1})))) ==
        std::vector<std::int32_t>{16});
}

TEST_CASE("devices that share NICs differently are apart, those with one NIC each are not") {
  TopologyDescription description = small::cluster({.servers = 2, .devices = 4});
  description.servers.front().nics = {nic_of({0, 1}), nic_of({2, 3})};
  CHECK(sizes_of(search::device_pools(Topology(description))) ==
        std::vector<std::int32_t>{2, 2, 2, 2});
  description.servers.front().nics = {nic_of({0}), nic_of({1}), nic_of({2}), nic_of({3})};
  CHECK(sizes_of(search::device_pools(Topology(description))) == std::vector<std::int32_t>{4, 4});
}

TEST_CASE("a stage of three on two servers of two has two placements, then one is left") {
  // Two and one, or one and two. Beside the first, the second server has one device left.
  const Topology topology(small::cluster({.servers = 2, .devices = 2}));
  search::PlacementSpace space(topology);
  CHECK(space.is_complete());
  const auto options = space.options(search::PlacementSpace::kNothing, 3);
  REQUIRE(options.size() == 2);
  CHECK(space.allocation(options[0].allocation).counts == std::vector<std::int32_t>{1, 2});
  CHECK(space.allocation(options[1].allocation).counts == std::vector<std::int32_t>{2, 1});
  CHECK(space.free_devices(options[1].used) == 1);
  const auto last = space.options(options[1].used, 1);
  REQUIRE(last.size() == 1);
  CHECK(space.allocation(last[0].allocation).counts == std::vector<std::int32_t>{0, 1});
  // The last stage has the end of each pool: devices 1 of node 0 and 3 of node 1 stay together.
  const auto devices = space.devices_of({last[0].allocation, options[1].allocation});
  CHECK(devices[0] == std::vector<DeviceIndex>{{2}});
  CHECK(devices[1] == std::vector<DeviceIndex>{{0}, {1}, {3}});
}

TEST_CASE("replicas of several devices are whole groups, whatever stands beside them") {
  const Topology topology(small::cluster({.servers = 1, .devices = 8}));
  search::PlacementSpace space(topology, /*in_order=*/false, search::equal_shares_only(), {2, 4});
  // Four devices are four replicas of one, two of two or one of four; three are three of one.
  const auto four = space.options(search::PlacementSpace::kNothing, 4);
  REQUIRE(four.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    const search::DeviceAllocation& allocation = space.allocation(four[i].allocation);
    CHECK(allocation.devices_per_replica == 1 << i);
    CHECK(allocation.replicas == 4 >> i);
  }
  CHECK(space.options(search::PlacementSpace::kNothing, 3).size() == 1);
  // One device in front of a replica of four and one of two, which comes last.
  const auto two = space.options(four[2].used, 2);
  REQUIRE(two.size() == 2);
  const auto one = space.options(two[1].used, 1);
  REQUIRE(one.size() == 1);
  const auto devices = space.devices_of({one[0].allocation, four[2].allocation, two[1].allocation});
  CHECK(devices[0] == std::vector<DeviceIndex>{{1}});
  CHECK(devices[1] == std::vector<DeviceIndex>{{4}, {5}, {6}, {7}});
  CHECK(devices[2] == std::vector<DeviceIndex>{{2}, {3}});
}

TEST_CASE("a replica of several devices is within a pool of theirs") {
  TopologyDescription description = small::cluster({.servers = 2, .devices = 6});
  description.servers.front().nics = {nic_of({0, 1}), nic_of({2, 3, 4, 5})};
  // Two pairs in four pools of one, two, one and two pairs.
  const Topology topology(description);
  search::PlacementSpace space(topology, /*in_order=*/false, search::equal_shares_only(), {2});
  int larger = 0;
  for (const auto& option : space.options(search::PlacementSpace::kNothing, 4)) {
    const search::DeviceAllocation& allocation = space.allocation(option.allocation);
    if (allocation.devices_per_replica == 1) continue;
    ++larger;
    for (const std::int32_t count : allocation.counts) CHECK(count % 2 == 0);
  }
  CHECK(larger == 8);
}

TEST_CASE("with too many ways to use the pools, only the policies' placements are looked at") {
  const Topology topology(small::cluster({.servers = 16, .devices = 8}));
  search::PlacementSpace space(topology);
  CHECK_FALSE(space.is_complete());
  // Eight devices: one whole server (fresh and append alike), or half of them one each.
  const auto options = space.options(search::PlacementSpace::kNothing, 8);
  CHECK(options.size() == 2);
}

TEST_CASE("alike servers of one device are a pool for each rack, unless they are alone in theirs") {
  TopologyDescription description = small::cluster({.servers = 6, .devices = 1});
  UplinkGroup rack;
  rack.bandwidth = Bandwidth{1'000'000'000};
  rack.count = 2;
  rack.members = 3;
  description.racks = {rack};
  CHECK(sizes_of(search::device_pools(Topology(description))) == std::vector<std::int32_t>{3, 3});
  rack.count = 6;
  rack.members = 1;
  description.racks = {rack};
  CHECK(sizes_of(search::device_pools(Topology(description))) == std::vector<std::int32_t>{6});
}

TEST_CASE("devices that reach their NIC through different PCIe roots are apart") {
  TopologyDescription description = small::cluster({.servers = 2, .devices = 4});
  const auto root = [](std::vector<std::int32_t> devices, std::vector<std::int32_t> nics) {
    return PcieRoot{.source = "",
                    .link = {{1'000'000'000}, {}},
                    .devices = std::move(devices),
                    .nics = std::move(nics)};
  };
  description.servers[0].pcie_roots = {root({0, 1}, {0}), root({2, 3}, {})};
  CHECK(sizes_of(search::device_pools(Topology(description))) ==
        std::vector<std::int32_t>{2, 2, 2, 2});
  // A NIC each, below the same root: nothing passes a root's port.
  description.servers[0].nics = {nic_of({0}), nic_of({1}), nic_of({2}), nic_of({3})};
  description.servers[0].pcie_roots = {root({0, 1}, {0, 1}), root({2, 3}, {2, 3})};
  CHECK(sizes_of(search::device_pools(Topology(description))) == std::vector<std::int32_t>{4, 4});
}

TEST_CASE("devices on the host path alone are a pool for each PCIe root") {
  TopologyDescription description =
      small::mesh({{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}}, {{1'000'000'000}, {}},
                  {{1'000'000'000}, {}});
  CHECK(sizes_of(search::device_pools(Topology(description))) == std::vector<std::int32_t>{4});
  const Link link{{500'000'000}, {}};
  description.servers[0].pcie_roots = {{.source = "", .link = link, .devices = {0, 1}, .nics = {}},
                                       {.source = "", .link = link, .devices = {2, 3}, .nics = {}}};
  CHECK(sizes_of(search::device_pools(Topology(description))) == std::vector<std::int32_t>{2, 2});
}

TEST_CASE("of the replicas with one largest share the fewest that fill several servers are told") {
  // With 10 to 19 replicas no replica has more than two of 20 samples, and 12 and 16 replicas fill
  // servers of four devices.
  const Topology topology(small::cluster({.servers = 5, .devices = 4}));
  std::vector<std::int32_t> told;
  for (std::int32_t replicas = 1; replicas <= 20; ++replicas) {
    if (search::are_first_to_fill_servers(topology, replicas, 20)) told.push_back(replicas);
  }
  // 7 to 9 replicas have three at most, of which 8 fill two servers; 4 fill a single one.
  CHECK(told == std::vector<std::int32_t>{8, 12, 20});
  const Topology alone(small::cluster({.servers = 20, .devices = 1}));
  CHECK_FALSE(search::are_first_to_fill_servers(alone, 8, 20));
}
