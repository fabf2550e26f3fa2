// All-reduces worked by hand: a ring over r devices carries 2 (r - 1) / r of the bytes over each
// hop, in 2 (r - 1) steps.

#include <catch2/catch.hpp>

#include "../../support/plans.h"
#include "../topology/meshes.h"

namespace dapple {
namespace {

using namespace small;

std::vector<DeviceIndex> devices(std::initializer_list<std::int32_t> numbers) {
  std::vector<DeviceIndex> result;
  for (const std::int32_t number : numbers) result.push_back({number});
  return result;
}

std::string ports_of(const AllReduceCost& cost, const Topology& topology) {
  std::string text;
  for (const auto& [port, size] : cost.ports()) {
    if (!text.empty()) text += ", ";
    text += topology.ports()[port.position()].name + " " + std::to_string(size.count);
  }
  return text;
}

TEST_CASE("one device reduces nothing, and no bytes take no time") {
  const Topology topology(cluster({.servers = 1, .devices = 2}));
  const AllReduceCost alone = AllReduceModel(devices({1}), topology).cost({100});
  CHECK(alone.algorithm == AllReduceAlgorithm::None);
  CHECK(alone.time.ns == 0);
  CHECK(alone.ports().empty());
  const AllReduceModel pair(devices({0, 1}), topology);
  CHECK(pair.cost({0}).algorithm == AllReduceAlgorithm::None);
  CHECK(pair.time({0}).ns == 0);
}

TEST_CASE("a flat ring carries 2 (r - 1) / r of the bytes over each hop") {
  // 100 bytes on four devices: 150 a hop, and 6 steps of 3 ns.
  const Topology topology(cluster({.servers = 1, .devices = 4, .inside = {bytes_per_ns(1), {3}}}));
  const AllReduceModel model(devices({0, 1, 2, 3}), topology);
  const AllReduceCost cost = model.cost({100});
  CHECK(cost.algorithm == AllReduceAlgorithm::FlatRing);
  CHECK(cost.busy.count == 150 * 1024);
  CHECK(cost.latency.ns == 18);
  CHECK(cost.time.ns == 168);
  CHECK(model.time({100}).ns == 168);
  CHECK(ports_of(cost, topology) ==
        "node0:0 out 150, node0:0 in 150, node0:1 out 150, node0:1 in 150, "
        "node0:2 out 150, node0:2 in 150, node0:3 out 150, node0:3 in 150");
}

TEST_CASE("a reduce-scatter is the first half of an all-reduce") {
  // 100 bytes on four devices: 75 a hop, and three steps of 3 ns.
  const Topology topology(cluster({.servers = 1, .devices = 4, .inside = {bytes_per_ns(1), {3}}}));
  const AllReduceModel model(devices({0, 1, 2, 3}), topology, /*is_sharded=*/true);
  const AllReduceCost cost = model.cost({100});
  CHECK(cost.time.ns == 84);
  CHECK(cost.busy.count == 75 * 1024);
  CHECK(cost.latency.ns == 9);
  REQUIRE(cost.phases.size() == 1);
  CHECK(cost.phases.front().rounds == 3);
  CHECK(model.time({100}) == cost.time);
  CHECK(AllReduceModel(devices({1}), topology, true).time({100}).ns == 0);
}

TEST_CASE("a hierarchical reduce-scatter does not gather inside the servers") {
  // Inside: half of 100 bytes in one step of 1 ns; across, over two NICs of 1 byte/ns each: half of
  // 100 bytes at 2 bytes/ns, in one step of 20 ns.
  const Topology topology(cluster({.servers = 2,
                                   .devices = 2,
                                   .inside = {bytes_per_ns(10), {1}},
                                   .nics = {{bytes_per_ns(1), {10}}, {bytes_per_ns(1), {10}}}}));
  const AllReduceModel model(devices({0, 1, 2, 3}), topology, true);
  const AllReduceCost cost = model.cost({100});
  CHECK(cost.algorithm == AllReduceAlgorithm::Hierarchical);
  CHECK(cost.phases.size() == 2);
  CHECK(cost.time.ns == 5 + 1 + 25 + 20);
  const AllReduceCost whole = AllReduceModel(devices({0, 1, 2, 3}), topology, false).cost({100});
  CHECK(whole.time.ns == 2 * cost.time.ns);
}

TEST_CASE("what ports carry is exact for the largest figures that files may hold") {
  // Each device sends 2 * 99 / 100 of 10^18 bytes, over one link or more.
  constexpr std::int32_t kDevices = 100;
  const Topology topology(full_mesh(kDevices, {{kMaxCount}, {}}));
  std::vector<DeviceIndex> all;
  for (std::int32_t device = 0; device < kDevices; ++device) all.push_back({device});
  const AllReduceCost cost = AllReduceModel(all, topology).cost({1000 * kMaxCount});
  Wide carried = 0;
  for (const auto& [port, size] : cost.ports()) carried += size.count;
  const Wide exact = Wide{2} * 99 * 1000 * kMaxCount;
  CHECK(carried <= exact);
  CHECK(carried > exact - static_cast<Wide>(cost.ports().size()));
}

TEST_CASE("the time of a ring is rounded up once") {
  // 100 bytes on three devices: 133.33 ns.
  const Topology topology(cluster({.servers = 1, .devices = 3}));
  const AllReduceCost cost = AllReduceModel(devices({0, 1, 2}), topology).cost({100});
  CHECK(cost.busy.count == 136534);  // 133.33 * 1024 = 136,533.3
  CHECK(cost.time.ns == 134);
}

TEST_CASE("a flat ring goes at the pace of its narrowest hop") {
  // Servers of two and of one device: 2 bytes per ns inside, 1 across at 2 * 5 ns. Unequal counts,
  // so no hierarchy: 4/3 * 90 = 120 ns and 4 steps of 10.
  ServerGroup two;
  two.name = "two";
  two.device = "gpu";
  two.devices = 2;
  two.links.port = {bytes_per_ns(2), {1}};
  two.nics = {{.source = "", .link = {bytes_per_ns(1), {5}}, .devices = {}}};
  ServerGroup one = two;
  one.name = "one";
  one.devices = 1;
  const Topology topology(description_of({two, one}));
  const AllReduceCost cost = AllReduceModel(devices({0, 1, 2}), topology).cost({90});
  CHECK(cost.algorithm == AllReduceAlgorithm::FlatRing);
  CHECK(cost.time.ns == 120 + 40);
  CHECK(ports_of(cost, topology) ==
        "two0:0 out 120, two0:1 in 120, two0 nic0 out 120, two0 nic0 in 120, "
        "one0 nic0 out 120, one0 nic0 in 120");
}

TEST_CASE("the faster of flat ring and hierarchy is taken, by size, and the flat ring on a tie") {
  // 2 servers of 4: inside 1 byte per ns and 4 ns, across 2 bytes per ns and 2 + 2 ns.
  // Flat: 7/4 n + 14 * 4. Hierarchy: 3/2 n + 6 * 4 inside, n / 2 + 2 * 4 across: 2 n + 32.
  // Equal where n / 4 = 24, at 96 bytes.
  const Topology topology(cluster({.servers = 2,
                                   .devices = 4,
                                   .inside = {bytes_per_ns(1), {4}},
                                   .nics = {Link{bytes_per_ns(2), {2}}}}));
  const AllReduceModel model(devices({0, 1, 2, 3, 4, 5, 6, 7}), topology);
  const AllReduceCost below = model.cost({92});
  CHECK(below.algorithm == AllReduceAlgorithm::Hierarchical);
  CHECK(below.time.ns == 2 * 92 + 32);
  CHECK(below.latency.ns == 32);
  const AllReduceCost tie = model.cost({96});
  CHECK(tie.algorithm == AllReduceAlgorithm::FlatRing);
  CHECK(tie.time.ns == 168 + 56);
  const AllReduceCost above = model.cost({100});
  CHECK(above.algorithm == AllReduceAlgorithm::FlatRing);
  CHECK(above.time.ns == 175 + 56);
}

TEST_CASE("a hierarchy reduces across servers over all NICs that take part") {
  // 100 bytes: inside 2 * 1/2 * 100 / 10 = 10 ns; across 2 * 1/2 * 100 over two NICs of 1 byte per
  // ns: 50 ns, 50 bytes each.
  const Link nic{bytes_per_ns(1), {}};
  const Topology topology(
      cluster({.servers = 2, .devices = 2, .inside = {bytes_per_ns(10), {}}, .nics = {nic, nic}}));
  const AllReduceCost cost = AllReduceModel(devices({0, 1, 2, 3}), topology).cost({100});
  CHECK(cost.algorithm == AllReduceAlgorithm::Hierarchical);
  CHECK(cost.time.ns == 60);
  CHECK(ports_of(cost, topology) ==
        "node0:0 out 100, node0:0 in 100, node0:1 out 100, node0:1 in 100, "
        "node0 nic0 out 50, node0 nic0 in 50, node0 nic1 out 50, node0 nic1 in 50, "
        "node1:0 out 100, node1:0 in 100, node1:1 out 100, node1:1 in 100, "
        "node1 nic0 out 50, node1 nic0 in 50, node1 nic1 out 50, node1 nic1 in 50");
}

TEST_CASE("a hierarchy waits for the slowest of its NICs' latencies") {
  // As above, but the second NIC has 7 ns: 2 (h - 1) = 2 steps of 7 + 7.
  const Topology topology(cluster({.servers = 2,
                                   .devices = 2,
                                   .inside = {bytes_per_ns(10), {}},
                                   .nics = {{bytes_per_ns(1), {}}, {bytes_per_ns(1), {7}}}}));
  const AllReduceCost cost = AllReduceModel(devices({0, 1, 2, 3}), topology).cost({100});
  CHECK(cost.algorithm == AllReduceAlgorithm::Hierarchical);
  CHECK(cost.latency.ns == 28);
  CHECK(cost.time.ns == 88);
}

TEST_CASE("three devices with a link for each pair reduce on two rings, one each way round") {
  // 4/3 * 90 = 120 bytes over 2 bytes per ns; each directed link carries half of them.
  const Topology topology(full_mesh(3, {bytes_per_ns(1), {5}}));
  const AllReduceCost cost = AllReduceModel(devices({0, 1, 2}), topology).cost({90});
  CHECK(cost.algorithm == AllReduceAlgorithm::MatrixRings);
  CHECK(cost.busy.count == 60 * 1024);
  CHECK(cost.time.ns == 60 + 4 * 5);
  CHECK(ports_of(cost, topology) ==
        "node0:0>node0:1 60, node0:0>node0:2 60, node0:1>node0:0 60, "
        "node0:1>node0:2 60, node0:2>node0:0 60, node0:2>node0:1 60");
}

TEST_CASE("all eight GPUs of a DGX-1 reduce on six rings") {
  // Six rings of 25 bytes per ns: 2 * 7/8 * 1200 / 150 = 14 ns, and 14 steps of 2 us, the latency
  // of a double link here.
  const Topology topology(meshes::one_group(meshes::mesh_group(meshes::kDgx1)));
  const AllReduceCost cost =
      AllReduceModel(devices({0, 1, 2, 3, 4, 5, 6, 7}), topology).cost({1200});
  CHECK(cost.algorithm == AllReduceAlgorithm::MatrixRings);
  CHECK(cost.busy.count == 14 * 1024);
  CHECK(cost.time.ns == 14 + 14 * 2000);
  // Six rings of eight hops, 350 bytes each: 48 lanes of the 48 that there are.
  std::int64_t carried = 0;
  for (const auto& [port, size] : cost.ports()) carried += size.count;
  CHECK(carried == 48 * 350);
}

TEST_CASE("two GPUs of a DGX-1 with a double link reduce over both lanes") {
  // 0 and 3: 2 * 1/2 * 1000 / 50 = 20 ns, two steps of 2 us.
  const Topology topology(meshes::one_group(meshes::mesh_group(meshes::kDgx1)));
  const AllReduceCost cost = AllReduceModel(devices({0, 3}), topology).cost({1000});
  CHECK(cost.algorithm == AllReduceAlgorithm::MatrixRings);
  CHECK(cost.time.ns == 20 + 2 * 2000);
}

TEST_CASE("a set without a ring of direct links takes the flat formula over the host path") {
  // 0 and 5 have no link: 10 bytes per ns and 9 us over the host path.
  const Topology topology(meshes::one_group(meshes::mesh_group(meshes::kDgx1)));
  const AllReduceCost cost = AllReduceModel(devices({0, 5}), topology).cost({1000});
  CHECK(cost.algorithm == AllReduceAlgorithm::FlatRing);
  CHECK(cost.time.ns == 100 + 2 * 9000);
  CHECK(ports_of(cost, topology) ==
        "node0:0 out 1000, node0:0 in 1000, node0:5 out 1000, node0:5 in 1000");
}

TEST_CASE("a ring with one missing link goes over the host path for that hop alone") {
  // 0, 1, 4: 0-1 and 4-0 have links, 1-4 has none. 4/3 * 900 = 1200 bytes at 10 bytes per ns.
  const Topology topology(meshes::one_group(meshes::mesh_group(meshes::kDgx1)));
  const AllReduceCost cost = AllReduceModel(devices({0, 1, 4}), topology).cost({900});
  CHECK(cost.algorithm == AllReduceAlgorithm::FlatRing);
  CHECK(cost.time.ns == 120 + 4 * 9000);
  CHECK(ports_of(cost, topology) ==
        "node0:1 out 1200, node0:4 in 1200, node0:0>node0:1 1200, node0:4>node0:0 1200");
}

TEST_CASE("a hierarchy over link matrices reduces inside on their rings") {
  // Two servers of three: 4/3 * 90 / 2 = 60 ns inside; across 2 * 1/2 * 90 / 10 = 9 ns. The flat
  // ring takes 2 * 5/6 * 90 / 1 = 150.
  TopologyDescription description = full_mesh(3, {bytes_per_ns(1), {}});
  description.servers[0].count = 2;
  description.servers[0].nics = {{.source = "", .link = {bytes_per_ns(10), {}}, .devices = {}}};
  const Topology topology(description);
  const AllReduceCost cost = AllReduceModel(devices({0, 1, 2, 3, 4, 5}), topology).cost({90});
  CHECK(cost.algorithm == AllReduceAlgorithm::Hierarchical);
  CHECK(cost.time.ns == 69);
  CHECK(cost.ports().size() == 6 + 2 + 6 + 2);
}

/// "rounds x busy + rounds x latency" of each phase, in ns.
std::string phases_of(const AllReduceCost& cost) {
  std::string text;
  for (const AllReducePhase& phase : cost.phases) {
    if (!text.empty()) text += ", ";
    text += std::to_string(phase.rounds) + " rounds " + std::to_string(phase.busy.count / 1024) +
            " + " + std::to_string(phase.latency.ns);
  }
  return text;
}

TEST_CASE("a ring takes one phase of 2 (r - 1) rounds, a hierarchy three") {
  const Link nic{bytes_per_ns(1), {3}};
  const Topology flat(cluster({.servers = 1, .devices = 4, .inside = {bytes_per_ns(1), {3}}}));
  CHECK(phases_of(AllReduceModel(devices({0, 1, 2, 3}), flat).cost({100})) == "6 rounds 150 + 3");
  // Inside 2 * 1/2 * 100 / 10 = 10 ns, half of it before and half behind the 100 across.
  const Topology topology(
      cluster({.servers = 2, .devices = 2, .inside = {bytes_per_ns(10), {2}}, .nics = {nic}}));
  const AllReduceCost cost = AllReduceModel(devices({0, 1, 2, 3}), topology).cost({100});
  CHECK(phases_of(cost) == "1 rounds 5 + 2, 2 rounds 100 + 6, 1 rounds 5 + 2");
  CHECK(cost.time.ns == 10 + 100 + 2 * 2 + 2 * 6);
}

PcieRoot root(std::vector<std::int32_t> below, std::vector<std::int32_t> nics,
              Bandwidth bandwidth) {
  return {
      .source = "", .link = {bandwidth, {}}, .devices = std::move(below), .nics = std::move(nics)};
}

TEST_CASE("a ring that crosses a PCIe root's port twice has half of it for each hop") {
  // Devices 0 and 2 below one root, 1 and 3 below the other: every hop of the ring 0 1 2 3 crosses.
  // 2 * 3/4 * 100 = 150 bytes a hop, 300 through a root's port, of 2 bytes per ns.
  TopologyDescription description = mesh({{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}},
                                         {bytes_per_ns(1), {}}, {bytes_per_ns(3), {}});
  description.servers[0].pcie_roots = {root({0, 2}, {}, bytes_per_ns(2)),
                                       root({1, 3}, {}, bytes_per_ns(2))};
  const Topology topology(description);
  const AllReduceCost cost = AllReduceModel(devices({0, 1, 2, 3}), topology).cost({100});
  CHECK(cost.time.ns == 150);
  CHECK(ports_of(cost, topology)
            .find("node0 root0 out 300, node0 root0 in 300, node0 root1 out "
                  "300, node0 root1 in 300") != std::string::npos);
  // 0 and 2 alone stay below their root: 100 bytes at 3 per ns.
  CHECK(AllReduceModel(devices({0, 2}), topology).time({100}).ns == 34);
}

TEST_CASE("what devices hand to a NIC below another PCIe root goes through both roots") {
  // Of the 100 bytes that each server sends, half are of device 0, below the other root than the
  // NIC. A root of a quarter of the NIC's bandwidth lets twice that through: 200 ns. Inside the
  // server the switch is used: 2 * 1/2 * 100 / 10 = 10 ns.
  TopologyDescription description =
      cluster({.servers = 2, .devices = 2, .inside = {bytes_per_ns(10), {}}});
  description.servers[0].pcie_roots = {root({0}, {}, {250'000'000}),
                                       root({1}, {0}, bytes_per_ns(4))};
  const Topology topology(description);
  const AllReduceCost cost = AllReduceModel(devices({0, 1, 2, 3}), topology).cost({100});
  CHECK(cost.algorithm == AllReduceAlgorithm::Hierarchical);
  CHECK(cost.time.ns == 210);
  CHECK(ports_of(cost, topology)
            .find("node0 nic0 out 100, node0 nic0 in 100, node0 root0 out 50, "
                  "node0 root0 in 50, node0 root1 out 50, node0 root1 in 50") != std::string::npos);
}

TEST_CASE("a ring in server order crosses each rack's uplink once in each direction") {
  // Four servers of one device, two racks: 2 * 3/4 * 100 = 150 bytes a hop, at half a byte per ns.
  TopologyDescription description = cluster({.servers = 4});
  UplinkGroup rack;
  rack.count = 2;
  rack.members = 2;
  rack.oversubscription = {4'000'000'000};
  rack.latency = {5};
  description.racks = {rack};
  const Topology topology(description);
  const AllReduceCost cost = AllReduceModel(devices({0, 1, 2, 3}), topology).cost({100});
  CHECK(cost.time.ns == 300 + 6 * 10);
  CHECK(ports_of(cost, topology).find("rack0 out 150, rack0 in 150, rack1 out 150, rack1 in 150") !=
        std::string::npos);
  // Within a rack it takes none.
  CHECK(AllReduceModel(devices({2, 3}), topology).time({100}).ns == 100);
}

TEST_CASE("a hierarchy sends over uplinks what all NICs of a server send") {
  // Two NICs of 1 byte per ns each; the uplink lets 1 through: 100 ns across, 10 inside.
  const Link nic{bytes_per_ns(1), {}};
  TopologyDescription description =
      cluster({.servers = 2, .devices = 2, .inside = {bytes_per_ns(10), {}}, .nics = {nic, nic}});
  UplinkGroup rack;
  rack.count = 2;
  rack.bandwidth = bytes_per_ns(1);
  description.racks = {rack};
  const Topology topology(description);
  const AllReduceCost cost = AllReduceModel(devices({0, 1, 2, 3}), topology).cost({100});
  CHECK(cost.algorithm == AllReduceAlgorithm::Hierarchical);
  CHECK(cost.time.ns == 110);
}

/// Of two devices of each of `servers`: 1,000 bytes in 100 ns, 3,000 in 500.
BusBandwidthTable measured(std::int32_t servers) {
  BusBandwidthTable table;
  table.servers = servers;
  table.devices = 2;
  // Bus bandwidth is 2 (r - 1) / r of size / time: the same for two devices, 1.5 times for four.
  const std::int64_t half = servers == 1 ? 2 : 3;
  table.points = {{{1'000}, {half * 5'000'000'000}}, {{3'000}, {half * 3'000'000'000}}};
  return table;
}

TEST_CASE("what was measured takes the place of the links, by the size of the message") {
  TopologyDescription description =
      cluster({.servers = 1, .devices = 4, .inside = {bytes_per_ns(1), {3}}});
  description.servers[0].bus_bandwidth = {measured(1)};
  const Topology topology(description);
  const AllReduceModel pair(devices({1, 3}), topology);
  CHECK(pair.time({0}).ns == 0);
  // Smaller than all that was measured: 10 ns and two steps of 3, but no more than 1,000 bytes
  // take.
  CHECK(pair.time({10}).ns == 16);
  CHECK(pair.time({97}).ns == 100);
  CHECK(pair.time({1'000}).ns == 100);
  CHECK(pair.time({2'000}).ns == 300);
  CHECK(pair.time({2'001}).ns == 301);  // 300.2
  CHECK(pair.time({3'000}).ns == 500);
  CHECK(pair.time({6'000}).ns == 1'000);
  // Another number of devices was not measured: 133.33 ns and 4 steps of 3 ns.
  CHECK(AllReduceModel(devices({0, 1, 2}), topology).time({100}).ns == 134 + 12);
}

TEST_CASE("a measured all-reduce is one phase, whose ports can keep up with it") {
  TopologyDescription description =
      cluster({.servers = 1, .devices = 2, .inside = {bytes_per_ns(1), {3}}});
  description.servers[0].bus_bandwidth = {measured(1)};
  const Topology topology(description);
  const AllReduceModel pair(devices({0, 1}), topology);
  // By the links 1,000 ns for 1,000 bytes: a tenth of them in 100 ns.
  const AllReduceCost quick = pair.cost({1'000});
  CHECK(phases_of(quick) == "1 rounds 100 + 0");
  CHECK(quick.time.ns == 100);
  CHECK(ports_of(quick, topology) ==
        "node0:0 out 100, node0:0 in 100, node0:1 out 100, node0:1 in 100");
  // By the links 97 ns and two steps of 3: all of the bytes in a little less.
  const AllReduceCost slow = pair.cost({97});
  CHECK(phases_of(slow) == "1 rounds 100 + 0");
  CHECK(ports_of(slow, topology) == "node0:0 out 97, node0:0 in 97, node0:1 out 97, node0:1 in 97");
  // Smaller ones are as the links make them.
  CHECK(phases_of(pair.cost({10})) == "2 rounds 10 + 3");
}

TEST_CASE("what was measured over several servers holds for neighbours of one group") {
  TopologyDescription description =
      cluster({.servers = 4, .devices = 2, .inside = {bytes_per_ns(1), {3}}});
  description.servers[0].bus_bandwidth = {measured(2)};
  const Topology flat(description);
  CHECK(AllReduceModel(devices({0, 1, 4, 5}), flat).time({3'000}).ns == 500);
  CHECK(AllReduceModel(devices({0, 1, 2}), flat).time({3'000}).ns != 500);
  CHECK(AllReduceModel(devices({0, 2, 4, 6}), flat).time({3'000}).ns != 500);
  UplinkGroup racks;
  racks.count = 2;
  racks.members = 2;
  description.racks = {racks};
  const Topology with_racks(description);
  CHECK(AllReduceModel(devices({0, 1, 2, 3}), with_racks).time({3'000}).ns == 500);
  CHECK(AllReduceModel(devices({0, 1, 4, 5}), with_racks).time({3'000}).ns != 500);
}

TEST_CASE("sets with and without a measurement are not as fast as each other") {
  TopologyDescription description = cluster({.servers = 1, .devices = 2});
  ServerGroup other = description.servers[0];
  other.name = "measured";
  other.bus_bandwidth = {measured(1)};
  description.servers.push_back(other);
  const Topology topology(description);
  const AllReduceModel pair(devices({0, 1}), topology);
  const AllReduceModel measured_pair(devices({2, 3}), topology);
  CHECK(pair.is_as_fast_as(pair));
  CHECK(measured_pair.is_as_fast_as(measured_pair));
  CHECK_FALSE(pair.is_as_fast_as(measured_pair));
}

}  // namespace
}  // namespace dapple
