#include "dapple/search/placement/placement.h"

#include <catch2/catch.hpp>
#include <map>
#include <vector>

#include "../../../support/clusters.h"
#include "../../../support/plans.h"
#include "dapple/cost/all_reduce.h"
#include "dapple/cost/transfer.h"

using namespace dapple;

namespace {

using Counts = std::vector<std::int32_t>;

Topology three_servers_of_four() {
  return Topology(small::cluster({.servers = 3, .devices = 4}));
}

}  // namespace

TEST_CASE("fresh first takes whole servers that nobody uses, the last server first") {
  const Topology topology = three_servers_of_four();
  CHECK(search::place(search::PlacementPolicy::FreshFirst, {0, 0, 0}, 6, topology) ==
        Counts{0, 2, 4});
  CHECK(search::place(search::PlacementPolicy::FreshFirst, {0, 0, 1}, 6, topology) ==
        Counts{2, 4, 0});
  CHECK(search::place(search::PlacementPolicy::FreshFirst, {0, 0, 1}, 10, topology) ==
        Counts{4, 4, 2});
}

TEST_CASE("append first fills up servers already in use") {
  const Topology topology = three_servers_of_four();
  CHECK(search::place(search::PlacementPolicy::AppendFirst, {0, 2, 4}, 3, topology) ==
        Counts{1, 2, 0});
}

TEST_CASE("scatter first spreads evenly over what is left") {
  const Topology topology = three_servers_of_four();
  CHECK(search::place(search::PlacementPolicy::ScatterFirst, {0, 0, 0}, 6, topology) ==
        Counts{2, 2, 2});
  CHECK(search::place(search::PlacementPolicy::ScatterFirst, {0, 0, 3}, 5, topology) ==
        Counts{2, 2, 1});
}

TEST_CASE("no policy takes more than there is") {
  const Topology topology = three_servers_of_four();
  for (const search::PlacementPolicy policy : search::kPlacementPolicies) {
    CHECK_FALSE(search::place(policy, {4, 4, 2}, 3, topology));
    CHECK(search::place(policy, {4, 4, 2}, 2, topology) == Counts{0, 0, 2});
  }
}

TEST_CASE("a placement is numbered once, and stages never share a device") {
  const Topology topology = three_servers_of_four();
  search::PlacementTable table(topology);
  const auto whole = table.options(search::PlacementTable::kNothing, 12);
  REQUIRE(whole.size() == 1);  // all policies take everything
  CHECK(table.at(whole.front()).used_count == 12);
  CHECK(table.options(whole.front(), 1).empty());
  for (const search::PlacementIndex last : table.options(search::PlacementTable::kNothing, 5)) {
    const std::vector<DeviceIndex> taken = table.at(last).devices;
    for (const search::PlacementIndex first : std::vector(table.options(last, 5))) {
      for (const DeviceIndex device : table.at(first).devices) {
        CHECK(std::find(taken.begin(), taken.end(), device) == taken.end());
      }
    }
  }
}

namespace {

/// Two kinds of servers, two of each, whose NICs differ.
TopologyDescription two_kinds_of_server() {
  TopologyDescription description = small::cluster({.servers = 2, .devices = 2});
  ServerGroup other = description.servers.front();
  other.name = "other";
  other.devices = 3;
  for (Nic& nic : other.nics) nic.link.bandwidth.bytes_per_second /= 2;
  description.servers.push_back(other);
  return description;
}

/// Four servers, two in each of two racks whose uplinks are narrow.
TopologyDescription two_racks() {
  TopologyDescription description = small::cluster({.servers = 4, .devices = 2});
  UplinkGroup racks;
  racks.count = 2;
  racks.members = 2;
  racks.bandwidth = Bandwidth{1'000'000};
  description.racks = {racks};
  return description;
}

/// All placements of up to three stages, as pairs of one and the one behind it.
std::vector<std::pair<search::PlacementIndex, search::PlacementIndex>> three_stages(
    search::PlacementTable& table, std::int32_t devices) {
  std::vector<std::pair<search::PlacementIndex, search::PlacementIndex>> all;
  const auto put_in_front = [&](search::PlacementIndex behind, std::int32_t left) {
    std::vector<search::PlacementIndex> placed;
    for (std::int32_t front = 1; front <= left; ++front) {
      for (const auto before : std::vector(table.options(behind, front))) {
        if (behind != search::PlacementTable::kNothing) all.emplace_back(before, behind);
        placed.push_back(before);
      }
    }
    return placed;
  };
  for (const auto last : put_in_front(search::PlacementTable::kNothing, devices)) {
    for (const auto second : put_in_front(last, devices - table.at(last).used_count)) {
      put_in_front(second, devices - table.at(second).used_count);
    }
  }
  return all;
}

}  // namespace

TEST_CASE("placements with equal pairs have the same transfers and all-reduces") {
  const std::int64_t samples = 12;
  const auto ends_on = [&](const std::vector<DeviceIndex>& devices) {
    std::vector<TransferEnd> ends;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      ends.push_back({.device = devices[i],
                      .samples = replica_share(samples, std::ssize(devices), std::ssize(ends))});
    }
    return ends;
  };
  for (const TopologyDescription& description :
       {small::cluster({.servers = 3, .devices = 4}), two_kinds_of_server(), two_racks()}) {
    const Topology topology(description);
    search::PlacementTable table(topology);
    std::map<search::PlacementPair, Duration> times;
    const auto pairs = three_stages(table, topology.device_count());
    for (const auto& [front, back] : pairs) {
      const std::vector<DeviceIndex>& devices = table.at(front).devices;
      const Duration time = transfer_cost(
                                ends_on(devices), ends_on(table.at(back).devices),
                                [](std::int64_t count) { return Bytes{count * 1000}; }, topology)
                                .time;
      CHECK(times.try_emplace(table.pair(front, back), time).first->second == time);
      CHECK(table.reduction(front).is_as_fast_as(AllReduceModel(devices, topology)));
    }
  }
}

TEST_CASE("placements that differ by whole servers are one pair, unless racks tell them apart") {
  const auto pair_of_last = [](const Topology& topology, search::PlacementTable& table,
                               std::int32_t servers) {
    search::PlacementIndex behind = search::PlacementTable::kNothing;
    for (std::int32_t s = 0; s < servers; ++s) {
      behind = table.options(behind, topology.server({0}).device_count).front();
    }
    const search::PlacementIndex front =
        table.options(behind, topology.server({0}).device_count).front();
    return table.pair(front, behind);
  };
  const Topology alike = three_servers_of_four();
  search::PlacementTable table(alike);
  CHECK(pair_of_last(alike, table, 1) == pair_of_last(alike, table, 2));
  const Topology racks(two_racks());
  search::PlacementTable in_racks(racks);
  CHECK(pair_of_last(racks, in_racks, 1) != pair_of_last(racks, in_racks, 2));
}
