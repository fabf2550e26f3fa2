#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <thread>

#include "meshes.h"

#include "dapple/core/error.h"
#include "dapple/core/random.h"
#include "dapple/topology/topology.h"

namespace dapple {
namespace {

using meshes::kGigabyte;
using meshes::LaneCounts;

RingPacking packing_of(const LaneCounts& lanes, const std::vector<std::int32_t>& numbers) {
  const Topology topology(meshes::one_group(meshes::mesh_group(lanes)));
  return topology.pack_rings(meshes::devices(numbers));
}

TEST_CASE("Two devices have a ring for each lane that they have both ways") {
  const RingPacking one = packing_of(meshes::kDgx1, {0, 1});
  CHECK(one.bandwidth == Bandwidth{25 * kGigabyte});
  CHECK(one.latency == Duration{1'000});
  CHECK(one.ports.size() == 2);
  const RingPacking two = packing_of(meshes::kDgx1, {0, 3});
  CHECK(two.bandwidth == Bandwidth{50 * kGigabyte});
  CHECK(two.latency == Duration{2'000});
  CHECK(packing_of({{0, 3}, {1, 0}}, {0, 1}).bandwidth == Bandwidth{25 * kGigabyte});
}

TEST_CASE("Devices without a cycle through all of them have no ring") {
  CHECK(packing_of(meshes::kDgx1, {0, 5}).bandwidth == Bandwidth{0});
  CHECK(packing_of(meshes::kDgx1, {0, 5}).ports.empty());
  // In a chain 0 - 1 - 2 the way back would pass 1 twice.
  CHECK(packing_of({{0, 1, 0}, {1, 0, 1}, {0, 1, 0}}, {0, 1, 2}).bandwidth == Bandwidth{0});
}

TEST_CASE("A DGX-1 has six rings over all its devices, which use up every lane") {
  const RingPacking packing = packing_of(meshes::kDgx1, {0, 1, 2, 3, 4, 5, 6, 7});
  // Six lanes leave each GPU, so no packing has more than six rings.
  CHECK(packing.bandwidth == Bandwidth{6 * 25 * kGigabyte});
  CHECK(packing.latency == Duration{2'000});
  const Topology topology(meshes::one_group(meshes::mesh_group(meshes::kDgx1)));
  CHECK(packing.ports.size() == 32);
  for (const auto& [port, taken] : packing.ports) {
    CHECK(taken == topology.ports()[port.position()].bandwidth);
  }
}

TEST_CASE("Half a DGX-1 has four rings") {
  // Lanes among 0, 1, 2, 3: 0-1 1, 0-2 1, 0-3 2, 1-2 2, 1-3 1, 2-3 2. GPU 0 and GPU 1 have four,
  // so four rings are the most: 0-3-2-1 both ways, and 0-3-1-2 or its like both ways: 0-3 takes its
  // second lane, 3-1, 1-2 its second, 2-0.
  CHECK(packing_of(meshes::kDgx1, {0, 1, 2, 3}).bandwidth == Bandwidth{4 * 25 * kGigabyte});
}

TEST_CASE("Four devices with a link of two lanes between any two have six rings") {
  // K4 has three Hamiltonian cycles, which together pass each of its edges twice; each is taken
  // both ways. Six lanes leave each device, so no more can be had.
  const LaneCounts mesh = {{0, 2, 2, 2}, {2, 0, 2, 2}, {2, 2, 0, 2}, {2, 2, 2, 0}};
  CHECK(packing_of(mesh, {0, 1, 2, 3}).bandwidth == Bandwidth{6 * 25 * kGigabyte});
}

TEST_CASE("A full mesh of four single links has two rings, not the three that its lanes suggest") {
  // The complete directed graph on four nodes has no decomposition into Hamiltonian cycles
  // (Bermond and Faber 1976; four and six are the exceptions).
  const LaneCounts mesh = {{0, 1, 1, 1}, {1, 0, 1, 1}, {1, 1, 0, 1}, {1, 1, 1, 0}};
  CHECK(packing_of(mesh, {0, 1, 2, 3}).bandwidth == Bandwidth{2 * 25 * kGigabyte});
}

TEST_CASE("Rings in one direction are found where the reverse has no lanes") {
  // 0 -> 1 -> 2 -> 0 with two lanes, and nothing back.
  const LaneCounts mesh = {{0, 2, 0}, {0, 0, 2}, {2, 0, 0}};
  CHECK(packing_of(mesh, {0, 1, 2}).bandwidth == Bandwidth{2 * 25 * kGigabyte});
}

TEST_CASE("A ring is as wide as its narrowest lane") {
  ServerGroup group = meshes::mesh_group({{0, 1, 2}, {1, 0, 1}, {2, 1, 0}});
  // NV1 is one lane of 25 GB/s; NV2 becomes one lane of 50 GB/s.
  group.links.kinds[1].lanes = 1;
  const Topology topology(meshes::one_group(group));
  const RingPacking packing = topology.pack_rings(meshes::devices({0, 1, 2}));
  CHECK(packing.bandwidth == Bandwidth{2 * 25 * kGigabyte});
  for (const auto& [port, taken] : packing.ports) CHECK(taken == Bandwidth{25 * kGigabyte});
}

TEST_CASE("Servers alike have the same rings, each over its own ports") {
  TopologyDescription description = meshes::two_by_eight();
  ServerGroup mesh = meshes::mesh_group(meshes::kDgx1);
  mesh.name = "dgx";
  mesh.count = 3;
  mesh.nics = description.servers[0].nics;
  description.servers.push_back(mesh);
  const Topology topology(description);
  // Devices 16-23 are dgx0, 32-39 are dgx2; asked for in the order that fills the memory last
  // first.
  const RingPacking last = topology.pack_rings(meshes::devices({32, 33, 35}));
  const RingPacking first = topology.pack_rings(meshes::devices({16, 17, 19}));
  CHECK(last.bandwidth == first.bandwidth);
  REQUIRE(last.ports.size() == first.ports.size());
  for (std::size_t i = 0; i < last.ports.size(); ++i) {
    const std::string& name = topology.ports()[last.ports[i].first.position()].name;
    CHECK(name.substr(0, 4) == "dgx2");
    std::string renamed = topology.ports()[first.ports[i].first.position()].name;
    for (std::size_t at = 0; (at = renamed.find("dgx0", at)) != std::string::npos;) {
      renamed.replace(at, 4, "dgx2");
    }
    CHECK(renamed == name);
  }
}

TEST_CASE("Threads that ask at once get the same packings") {
  const Topology topology(meshes::one_group(meshes::mesh_group(meshes::kDgx1)));
  const Topology alone(meshes::one_group(meshes::mesh_group(meshes::kDgx1)));
  std::vector<std::vector<RingPacking>> found(3);
  std::vector<std::thread> threads;
  for (auto& packings : found) {
    threads.emplace_back([&topology, &packings] {
      for (std::int32_t without = 0; without < 8; ++without) {
        std::vector<std::int32_t> numbers;
        for (std::int32_t number = 0; number < 8; ++number) {
          if (number != without) numbers.push_back(number);
        }
        packings.push_back(topology.pack_rings(meshes::devices(numbers)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t without = 0; without < 8; ++without) {
    std::vector<std::int32_t> numbers;
    for (std::int32_t number = 0; number < 8; ++number) {
      if (number != static_cast<std::int32_t>(without)) numbers.push_back(number);
    }
    const RingPacking expected = alone.pack_rings(meshes::devices(numbers));
    for (const auto& packings : found) {
      CHECK(packings[without].bandwidth == expected.bandwidth);
      CHECK(packings[without].ports == expected.ports);
    }
  }
}

TEST_CASE("Rings over a switch, one device or several servers are the caller's bug") {
  const Topology topology(meshes::two_by_eight());
  CHECK_THROWS_AS(topology.pack_rings(meshes::devices({0, 1})), Bug);
  CHECK_THROWS_AS(topology.pack_rings(meshes::devices({0})), Bug);
  CHECK_THROWS_AS(topology.pack_rings(meshes::devices({7, 8})), Bug);
}

/// The best packing by trying every set of rings, remembering what is left: from each state, every
/// cycle from `next` on may be taken once more or passed over.
class Oracle {
 public:
  Oracle(LaneCounts lanes, std::vector<std::vector<std::int64_t>> each) : each_(std::move(each)) {
    std::vector<std::size_t> nodes(lanes.size());
    for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i] = i;
    do cycles_.push_back(nodes);
    while (std::next_permutation(nodes.begin() + 1, nodes.end()));
    best_ = best_from(lanes, 0);
  }
  std::int64_t best() const { return best_; }

 private:
  std::int64_t best_from(LaneCounts& left, std::size_t next) {
    if (next == cycles_.size()) return 0;
    const auto [entry, is_new] = known_.try_emplace({next, left});
    if (!is_new) return entry->second;
    std::int64_t best = best_from(left, next + 1);
    const std::vector<std::size_t>& cycle = cycles_[next];
    bool fits = true;
    std::int64_t narrowest = INT64_MAX;
    for (std::size_t i = 0; i < cycle.size(); ++i) {
      const std::size_t to = cycle[(i + 1) % cycle.size()];
      fits &= left[cycle[i]][to] > 0;
      narrowest = std::min(narrowest, each_[cycle[i]][to]);
    }
    if (fits) {
      for (std::size_t i = 0; i < cycle.size(); ++i)
        --left[cycle[i]][cycle[(i + 1) % cycle.size()]];
      best = std::max(best, narrowest + best_from(left, next));
      for (std::size_t i = 0; i < cycle.size(); ++i)
        ++left[cycle[i]][cycle[(i + 1) % cycle.size()]];
    }
    known_[{next, left}] = best;
    return best;
  }

  std::vector<std::vector<std::int64_t>> each_;
  std::vector<std::vector<std::size_t>> cycles_;
  std::map<std::pair<std::size_t, LaneCounts>, std::int64_t> known_;
  std::int64_t best_ = 0;
};

/// No port carries more than it has, and every device sends and receives all rings.
void require_balanced(const Topology& topology, const RingPacking& packing) {
  for (const auto& [port, taken] : packing.ports) {
    REQUIRE(taken <= topology.ports()[port.position()].bandwidth);
  }
  for (std::int32_t from = 0; from < topology.device_count(); ++from) {
    std::int64_t sent = 0;
    std::int64_t received = 0;
    for (const auto& [port, taken] : packing.ports) {
      const std::string& name = topology.ports()[port.position()].name;
      const std::string own = topology.device({from}).name;
      if (name.substr(0, own.size() + 1) == own + ">") sent += taken.bytes_per_second;
      if (name.substr(name.size() - own.size() - 1) == ">" + own)
        received += taken.bytes_per_second;
    }
    REQUIRE(sent == packing.bandwidth.bytes_per_second);
    REQUIRE(received == packing.bandwidth.bytes_per_second);
  }
}

TEST_CASE("Random meshes of up to five devices: no set of rings is wider") {
  RandomSequence random(5);
  for (int round = 0; round < 2'000; ++round) {
    const std::size_t size = 2 + random() % 4;
    const bool symmetric = random() % 2 == 0;
    const int most = size == 5 ? 2 : 3;
    LaneCounts lanes(size, std::vector<int>(size, 0));
    for (std::size_t from = 0; from < size; ++from) {
      for (std::size_t to = 0; to < size; ++to) {
        if (from == to) continue;
        lanes[from][to] = static_cast<int>(random() % static_cast<unsigned>(most + 1));
        if (symmetric && to < from) lanes[from][to] = lanes[to][from];
      }
    }
    ServerGroup group = meshes::mesh_group(lanes);
    // In half of the meshes, a bonded link's lanes have a bandwidth of their own.
    const bool uneven = random() % 2 == 0;
    std::vector<std::int64_t> lane_of_kind;
    for (std::size_t kind = 0; kind < group.links.kinds.size(); ++kind) {
      const std::int64_t each =
          uneven ? static_cast<std::int64_t>(1 + random() % 5) * kGigabyte : 25 * kGigabyte;
      group.links.kinds[kind].link.bandwidth = {each * group.links.kinds[kind].lanes};
      lane_of_kind.push_back(each);
    }
    std::vector<std::vector<std::int64_t>> each(size, std::vector<std::int64_t>(size, 0));
    std::vector<std::int32_t> all;
    for (std::size_t from = 0; from < size; ++from) {
      all.push_back(static_cast<std::int32_t>(from));
      for (std::size_t to = 0; to < size; ++to) {
        if (lanes[from][to] == 0) continue;
        each[from][to] = lane_of_kind[static_cast<std::size_t>(lanes[from][to] - 1)];
      }
    }
    const Topology topology(meshes::one_group(group));
    const RingPacking packing = topology.pack_rings(meshes::devices(all));
    CAPTURE(round);
    require_balanced(topology, packing);
    REQUIRE(packing.bandwidth.bytes_per_second == Oracle(lanes, each).best());
  }
}

}  // namespace
}  // namespace dapple
