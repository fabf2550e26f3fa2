#include "dapple/search/placement/spread_reductions.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>

#include "../../../support/plans.h"

using namespace dapple;

namespace {

constexpr Bytes kSizes[] = {Bytes{1}, Bytes{1'000}, Bytes{1'000'000}, Bytes{1'000'000'000}};

/// Returns the least time over the devices of any of these reductions.
Duration least_of(const std::vector<search::SpreadReductions::Reduction>& reductions, Bytes size) {
  Duration least = Duration::infinite();
  for (const auto& some : reductions) least = std::min(least, some.model.time(size));
  return least;
}

/// Checks that no set of devices reduces faster than what represents as many of them, and that one
/// takes as long.
void check_against_all_sets(const Topology& topology) {
  const search::SpreadReductions reductions(topology);
  REQUIRE(reductions.has_alike_servers());
  const auto all = static_cast<std::uint32_t>(topology.device_count());
  for (std::int32_t count = 1; count <= topology.device_count(); ++count) {
    for (const Bytes size : kSizes) {
      CAPTURE(count, size.count);
      Duration least = Duration::infinite();
      for (std::uint32_t set = 1; set < 1u << all; ++set) {
        if (std::popcount(set) != count) continue;
        std::vector<DeviceIndex> devices;
        for (std::uint32_t d = 0; d < all; ++d) {
          if ((set >> d & 1u) != 0) devices.push_back({static_cast<std::int32_t>(d)});
        }
        least = std::min(least, AllReduceModel(devices, topology).time(size));
      }
      CHECK(least_of(reductions.over(count), size) == least);
    }
  }
}

}  // namespace

TEST_CASE("of all sets of devices on alike servers one of those that represent them is fastest") {
  TopologyDescription description = small::cluster({.servers = 3, .devices = 4});
  SECTION("with one NIC a server") {
    check_against_all_sets(Topology(description));
  }
  SECTION("with several NICs") {
    std::vector<Nic>& nics = description.servers[0].nics;
    nics = {nics.front(), nics.front()};
    nics[0].devices = {0, 1};
    nics[1].devices = {2, 3};
    check_against_all_sets(Topology(description));
  }
}

TEST_CASE("reductions are made once, with and without what was measured") {
  TopologyDescription description = small::cluster({.servers = 2, .devices = 4});
  const std::size_t computed = search::SpreadReductions(Topology(description)).over(4).size();
  CHECK(computed == 3);  // on one server, on three and one, on two and two
  description.servers[0].bus_bandwidth = {
      {.source = "test",
       .servers = 2,
       .devices = 2,
       .points = {{.size = Bytes{1'000'000}, .bandwidth = Bandwidth{1'000}}}}};
  const search::SpreadReductions reductions{Topology(description)};
  CHECK(reductions.over(4).size() == 2 * computed);
  CHECK(&reductions.over(4) == &reductions.over(4));
  CHECK(reductions.over(4)[2].devices_per_server == 2);
  CHECK(reductions.over(4)[2].model.time(Bytes{1'000'000}) >
        reductions.over(4)[5].model.time(Bytes{1'000'000}));
}

TEST_CASE("servers of different numbers of devices are not alike") {
  TopologyDescription description = small::cluster({.servers = 2, .devices = 4});
  description.servers.push_back(description.servers.front());
  description.servers.back().devices = 2;
  description.servers.back().name = "other";
  const search::SpreadReductions reductions{Topology(description)};
  CHECK_FALSE(reductions.has_alike_servers());
  CHECK(reductions.open_topology().device_count() == 12);
}
