#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <numeric>

#include "meshes.h"

#include "dapple/core/random.h"
#include "dapple/topology/topology.h"

namespace dapple {
namespace {

using meshes::LaneCounts;

std::vector<std::int32_t> fill_numbers(const Topology& topology, ServerIndex server) {
  std::vector<std::int32_t> numbers;
  for (const DeviceIndex device : topology.fill_order(server)) {
    REQUIRE(topology.device(device).server == server);
    numbers.push_back(topology.device(device).number);
  }
  return numbers;
}

struct PathWorth {
  std::int64_t narrowest = std::numeric_limits<std::int64_t>::max();
  std::int64_t sum = 0;
  friend auto operator<=>(const PathWorth&, const PathWorth&) = default;
};

PathWorth worth(const Topology& topology, const std::vector<std::int32_t>& path) {
  PathWorth result;
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    const std::int64_t hop = std::min(topology.route({path[i]}, {path[i + 1]}).bandwidth,
                                      topology.route({path[i + 1]}, {path[i]}).bandwidth)
                                 .bytes_per_second;
    result.narrowest = std::min(result.narrowest, hop);
    result.sum += hop;
  }
  return result;
}

TEST_CASE("A switched server is filled by number") {
  const Topology topology(meshes::two_by_eight());
  CHECK(fill_numbers(topology, {1}) == std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(topology.fill_order({1}).front() == DeviceIndex{8});
}

TEST_CASE("A DGX-1 is filled along a path of double links") {
  const Topology topology(meshes::one_group(meshes::mesh_group(meshes::kDgx1)));
  // The double links are the ring 0-3-2-1-5-6-7-4-0; the first path along it starts 0, 3.
  CHECK(fill_numbers(topology, {0}) == std::vector<std::int32_t>{0, 3, 2, 1, 5, 6, 7, 4});
}

TEST_CASE("A hop is as wide as its narrower direction, the host path where there is no link") {
  // 0 -> 1 has three lanes, but back only the host path of 10 GB/s; 0 = 2 and 2 = 1 one lane.
  const Topology topology(meshes::one_group(meshes::mesh_group({{0, 3, 1}, {0, 0, 1}, {1, 1, 0}})));
  CHECK(fill_numbers(topology, {0}) == std::vector<std::int32_t>{0, 2, 1});
}

TEST_CASE("Random meshes: no path is wider, then larger in sum, then earlier") {
  RandomSequence random(3);
  for (int round = 0; round < 200; ++round) {
    const std::size_t size = 2 + random() % 5;
    LaneCounts lanes(size, std::vector<int>(size, 0));
    for (std::size_t from = 0; from < size; ++from) {
      for (std::size_t to = 0; to < size; ++to) {
        if (from != to) lanes[from][to] = static_cast<int>(random() % 4);
      }
    }
    const Topology topology(meshes::one_group(meshes::mesh_group(lanes)));
    std::vector<std::int32_t> path(size);
    std::iota(path.begin(), path.end(), 0);
    std::vector<std::int32_t> best = path;
    do {
      if (worth(topology, path) > worth(topology, best)) best = path;
    } while (std::next_permutation(path.begin(), path.end()));
    CAPTURE(round);
    REQUIRE(fill_numbers(topology, {0}) == best);
  }
}

TEST_CASE("A server of more than ten devices is filled along widest hops, each device once") {
  // A ring of twelve with two lanes per hop, numbered so that neighbours differ by five; any other
  // two have one lane.
  LaneCounts lanes(12, std::vector<int>(12, 1));
  for (std::size_t i = 0; i < 12; ++i) {
    lanes[i][i] = 0;
    lanes[i][(i + 5) % 12] = 2;
    lanes[(i + 5) % 12][i] = 2;
  }
  const Topology topology(meshes::one_group(meshes::mesh_group(lanes)));
  const std::vector<std::int32_t> order = fill_numbers(topology, {0});
  CHECK(order == std::vector<std::int32_t>{0, 5, 10, 3, 8, 1, 6, 11, 4, 9, 2, 7});
  CHECK(worth(topology, order).sum == 11 * 50 * meshes::kGigabyte);
}

}  // namespace
}  // namespace dapple
