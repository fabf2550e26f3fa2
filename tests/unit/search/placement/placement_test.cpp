#include "dapple/search/placement/placement.h"

#include <catch2/catch.hpp>

#include "../../../support/plans.h"

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
