#include <catch2/catch.hpp>
#include <functional>

#include "meshes.h"

#include "dapple/core/error.h"
#include "dapple/topology/topology.h"

namespace dapple {
namespace {

std::string refusal(const TopologyDescription& description) {
  try {
    const Topology topology(description, "t.json");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::BadInput);
    return error.what();
  }
  return "accepted";
}

/// What two servers of eight are refused for, once something is wrong with them.
std::string refusal_with(const std::function<void(TopologyDescription&)>& fault) {
  TopologyDescription description = meshes::two_by_eight();
  fault(description);
  return refusal(description);
}

TEST_CASE("The undamaged topologies are accepted") {
  CHECK(refusal(meshes::two_by_eight()) == "accepted");
  CHECK(refusal(meshes::one_group(meshes::mesh_group(meshes::kDgx1))) == "accepted");
}

TEST_CASE("No servers, or servers without devices, are refused") {
  CHECK(refusal_with([](auto& t) { t.servers.clear(); }) ==
        "t.json: /servers: expected at least one server, got none");
  CHECK(refusal_with([](auto& t) { t.servers[0].count = 0; }) ==
        "t.json: /servers/0/count: expected at least one server, got 0");
  CHECK(refusal_with([](auto& t) { t.servers[0].devices = 0; }) ==
        "t.json: /servers/0/devices: expected at least one device, got 0");
}

TEST_CASE("An unknown device kind is refused with those that there are") {
  CHECK(refusal_with([](auto& t) { t.servers[0].device = "V-100"; }) ==
        "t.json: /servers/0/device: expected a device kind of this file (\"V100\"), got \"V-100\"");
  CHECK(refusal_with([](auto& t) { t.devices.clear(); }) ==
        "t.json: /servers/0/device: expected a device kind of this file (it has none), got "
        "\"V100\"");
}

TEST_CASE("Memory that is all reserved is refused, and the place is a valid JSON pointer") {
  CHECK(refusal_with([](auto& t) { t.devices[0].reserved = t.devices[0].memory; }) ==
        "t.json: /devices/V100/reserved: expected less than the memory of 17179869184 B, got "
        "17179869184 B");
  CHECK(refusal_with([](auto& t) {
          t.devices.push_back(t.devices[0]);
          t.devices[1].name = "a/b~c";
          t.devices[1].reserved = t.devices[1].memory;
        }).find("t.json: /devices/a~1b~0c/reserved: ") == 0);
}

TEST_CASE("Measured bus bandwidths that cannot be are refused with their place") {
  using Points = std::vector<BusBandwidthTable::Point>;
  const auto with_table = [](const BusBandwidthTable& table) {
    return refusal_with([&](auto& t) { t.servers[0].bus_bandwidth = {table}; });
  };
  const auto table_of = [](std::int32_t servers, std::int32_t devices, Points points) {
    BusBandwidthTable table;
    table.servers = servers;
    table.devices = devices;
    table.points = std::move(points);
    return table;
  };
  const Points one{{{1'000}, {1'000'000'000}}};
  CHECK(with_table(table_of(2, 8, one)) == "accepted");
  CHECK(with_table(table_of(1, 8, one)) == "accepted");
  CHECK(with_table(table_of(3, 8, one)) ==
        "t.json: /servers/0/bus_bandwidth/0/servers: expected from 1 to the 2 servers, got 3");
  CHECK(with_table(table_of(2, 9, one)) ==
        "t.json: /servers/0/bus_bandwidth/0/devices: expected from 1 to the 8 devices of a server, "
        "got 9");
  CHECK(with_table(table_of(1, 1, one)) ==
        "t.json: /servers/0/bus_bandwidth/0: expected two devices or more, got one");
  CHECK(with_table(table_of(1, 8, {})) ==
        "t.json: /servers/0/bus_bandwidth/0/points: expected at least one point, got none");
  CHECK(with_table(table_of(1, 8, {{{1'000}, {0}}})) ==
        "t.json: /servers/0/bus_bandwidth/0/points/0/bandwidth: expected more than 0 B/s, got 0 "
        "B/s");
  CHECK(with_table(table_of(1, 8, {{{1'000}, {1}}, {{1'000}, {1}}})) ==
        "t.json: /servers/0/bus_bandwidth/0/points/1/size: expected more than 1000 B, got 1000 B");
  CHECK(with_table(table_of(1, 8, {{{1LL << 60}, {1}}})) ==
        "t.json: /servers/0/bus_bandwidth/0/points/0: expected a message that takes at most 11 "
        "days, got one that takes longer");
  // On two devices bus bandwidth is size / time: 1,000 ns, then 500.
  CHECK(with_table(table_of(1, 2, {{{1'000}, {1'000'000'000}}, {{2'000}, {4'000'000'000}}})) ==
        "t.json: /servers/0/bus_bandwidth/0/points/1: expected at least the 1000 ns of the smaller "
        "message before it, got 500 ns");
  CHECK(refusal_with([&](auto& t) {
          t.servers[0].bus_bandwidth = {table_of(1, 8, one), table_of(1, 8, one)};
        }) ==
        "t.json: /servers/0/bus_bandwidth/1: expected other servers and devices than in "
        "/servers/0/bus_bandwidth/0, got the same");
}

TEST_CASE("Several servers without a network or without NICs are refused, a single one is not") {
  CHECK(refusal_with([](auto& t) { t.network.reset(); }) ==
        "t.json: /network: expected a network, as there are several servers, got none");
  CHECK(refusal_with([](auto& t) { t.servers[0].nics.clear(); }) ==
        "t.json: /servers/0/nics: expected at least one NIC, as there are several servers, got "
        "none");
  CHECK(refusal_with([](auto& t) {
          t.servers[0].count = 1;
          t.servers[0].nics.clear();
          t.network.reset();
        }) == "accepted");
}

TEST_CASE("A NIC list that is out of range, double or short is refused, each by its place") {
  const auto with_lists = [](std::vector<std::vector<std::int32_t>> lists) {
    return refusal_with([&](TopologyDescription& t) {
      const Nic nic = t.servers[0].nics.front();
      t.servers[0].nics.clear();
      for (const auto& list : lists) {
        t.servers[0].nics.push_back(nic);
        t.servers[0].nics.back().devices = list;
      }
    });
  };
  CHECK(with_lists({{0, 1, 2, 3}, {4, 5, 6, 7}}) == "accepted");
  CHECK(with_lists({{0, 1, 2, 3}, {4, 5, 6, 7, 8}}) ==
        "t.json: /servers/0/nics/1/devices: expected device numbers from 0 to 7, got 8");
  CHECK(with_lists({{0, 1, 2, 3, 3}, {4, 5, 6, 7}}) ==
        "t.json: /servers/0/nics/0/devices: expected each device at one NIC, got device 3 twice");
  CHECK(with_lists({{0, 1, 2, 3}, {3, 4, 5, 6, 7}}) ==
        "t.json: /servers/0/nics/1/devices: expected each device at one NIC, got device 3 of NIC 0 "
        "again");
  CHECK(with_lists({{0, 1, 2, 3}, {4, 5, 7}}) ==
        "t.json: /servers/0/nics: expected a NIC for each device, got none for device 6");
  CHECK(with_lists({{0, 1, 2, 3, 4, 5, 6, 7}, {}}) ==
        "t.json: /servers/0/nics/1/devices: expected the devices that use it, as other NICs here "
        "name theirs, got none");
}

TEST_CASE("Devices that cannot reach each other are refused, the first pair by name") {
  ServerGroup group = meshes::mesh_group(meshes::kDgx1);
  group.links.host_path.reset();
  // A DGX-1 links 16 of its 28 pairs; the other 12 are missing both ways.
  CHECK(refusal(meshes::one_group(group)) ==
        "t.json: /servers/0/links: node0:0 cannot reach node0:5: expected a direct link or a "
        "host_path, got neither, like 23 other pairs");
  ServerGroup one_way = meshes::mesh_group({{0, 1}, {0, 0}});
  one_way.links.host_path.reset();
  CHECK(refusal(meshes::one_group(one_way)) ==
        "t.json: /servers/0/links: node0:1 cannot reach node0:0: expected a direct link or a "
        "host_path, got neither");
}

TEST_CASE("A link matrix of the wrong shape, or that names links that are not there, is refused") {
  ServerGroup group = meshes::mesh_group({{0, 1}, {1, 0}});
  group.devices = 3;
  CHECK(
      refusal(meshes::one_group(group)) ==
      "t.json: /servers/0/links/matrix: expected 3 rows of 3 entries, one per device, got 2 of 2");
  group = meshes::mesh_group({{0, 1}, {1, 0}});
  group.links.matrix(1, 0) = 1;
  CHECK(refusal(meshes::one_group(group)) ==
        "t.json: /servers/0/links/matrix/1/0: expected a link kind below 1, got 1");
  group.links.matrix(1, 0) = 0;
  group.links.matrix(1, 1) = 0;
  CHECK(refusal(meshes::one_group(group)) ==
        "t.json: /servers/0/links/matrix/1/1: expected no link from a device to itself, got "
        "\"NV1\"");
}

TEST_CASE("Zero bandwidth is refused wherever it is used") {
  CHECK(refusal_with([](auto& t) { t.network->bandwidth = {0}; }) ==
        "t.json: /network/bandwidth: expected more than 0 B/s, got 0 B/s");
  CHECK(refusal_with([](auto& t) { t.servers[0].nics[0].link.bandwidth = {0}; }) ==
        "t.json: /servers/0/nics/0/bandwidth: expected more than 0 B/s, got 0 B/s");
  CHECK(refusal_with([](auto& t) {
          t.racks.emplace_back();
          t.racks[0].members = 2;
          t.racks[0].bandwidth = Bandwidth{0};
        }) == "t.json: /racks/0/uplink/bandwidth: expected more than 0 B/s, got 0 B/s");
  CHECK(refusal_with([](auto& t) { t.servers[0].links.port.bandwidth = {0}; }) ==
        "t.json: /servers/0/links/bandwidth: expected more than 0 B/s, got 0 B/s");
  ServerGroup group = meshes::mesh_group({{0, 1}, {1, 0}});
  group.links.kinds[0].lanes = 0;
  group.links.host_path->bandwidth = {0};
  CHECK(refusal(meshes::one_group(group)) ==
        "t.json: /servers/0/links/kinds/NV1/lanes: expected at least one lane, of at least 1 B/s "
        "each, got 0\n"
        "t.json: /servers/0/links/host_path/bandwidth: expected more than 0 B/s, got 0 B/s");
}

TEST_CASE("PCIe roots that leave something out, or have it twice, are refused") {
  const auto with_roots = [](std::vector<std::vector<std::int32_t>> devices,
                             std::vector<std::vector<std::int32_t>> nics) {
    return refusal_with([&](TopologyDescription& t) {
      for (std::size_t i = 0; i < devices.size(); ++i) {
        t.servers[0].pcie_roots.push_back(
            {.source = "", .link = meshes::link(16, 1), .devices = devices[i], .nics = nics[i]});
      }
    });
  };
  CHECK(with_roots({{0, 1, 2, 3}, {4, 5, 6, 7}}, {{}, {0}}) == "accepted");
  CHECK(with_roots({{0, 1, 2, 3}, {4, 5, 6}}, {{}, {0}}) ==
        "t.json: /servers/0/pcie_roots: expected each device below a root, got none for device 7");
  CHECK(with_roots({{0, 1, 2, 3, 4}, {4, 5, 6, 7}}, {{}, {0}}) ==
        "t.json: /servers/0/pcie_roots/1/devices: expected each device below one root, got device "
        "4 of root 0 again");
  CHECK(with_roots({{0, 1, 2, 3}, {4, 5, 6, 7, 7}}, {{}, {0}}) ==
        "t.json: /servers/0/pcie_roots/1/devices: expected each device below one root, got device "
        "7 twice");
  CHECK(with_roots({{0, 1, 2, 3}, {4, 5, 6, 7}}, {{1}, {0}}) ==
        "t.json: /servers/0/pcie_roots/0/nics: expected NIC numbers below 1, got 1");
  CHECK(with_roots({{0, 1, 2, 3}, {4, 5, 6, 7}}, {{}, {}}) ==
        "t.json: /servers/0/pcie_roots: expected each NIC below a root, got none for NIC 0");
}

TEST_CASE("Racks for more or fewer servers than there are, and pods likewise, are refused") {
  const auto group = [](std::int32_t count, std::int32_t members) {
    UplinkGroup made;
    made.count = count;
    made.members = members;
    return made;
  };
  CHECK(refusal_with([&](auto& t) { t.racks = {group(2, 1)}; }) == "accepted");
  CHECK(refusal_with([&](auto& t) { t.racks = {group(2, 2)}; }) ==
        "t.json: /racks: expected racks for all of the 2 servers, got 4");
  CHECK(refusal_with([&](auto& t) {
          t.racks = {group(2, 1)};
          t.pods = {group(1, 1)};
        }) == "t.json: /pods: expected pods for all of the 2 racks, got 1");
  CHECK(refusal_with([&](auto& t) { t.pods = {group(1, 2)}; }) ==
        "t.json: /pods: expected racks, as there are pods, got none");
  CHECK(refusal_with([&](auto& t) {
          t.racks = {group(0, 1), group(1, 2)};
        }) == "t.json: /racks/0/count: expected at least one, got 0");
  CHECK(refusal_with([&](auto& t) {
          t.racks = {group(1, 0), group(1, 2)};
        }) == "t.json: /racks/0/servers: expected at least one, got 0");
  CHECK(refusal_with([&](auto& t) {
          t.racks = {group(1, 2)};
          t.racks[0].oversubscription = {0};
        }) == "t.json: /racks/0/uplink/oversubscription: expected more than 0, got 0 billionths");
}

TEST_CASE("Server names that meet once numbered are refused") {
  const auto with_names = [](std::int32_t count, const std::string& other) {
    return refusal_with([&](TopologyDescription& t) {
      t.servers.push_back(t.servers[0]);
      t.servers[0].name = "a";
      t.servers[0].count = count;
      t.servers[1].name = other;
    });
  };
  CHECK(with_names(12, "a1") ==
        "t.json: /servers/1/name: expected server names that differ once numbered, got \"a10\", "
        "which /servers/0 has too");
  CHECK(with_names(10, "a1") == "accepted");
  CHECK(with_names(1, "a") ==
        "t.json: /servers/1/name: expected server names that differ once numbered, got \"a0\", "
        "which /servers/0 has too");
}

TEST_CASE("65,536 devices are the most, and a billion servers are refused without naming them") {
  CHECK(refusal_with([](auto& t) { t.servers[0].count = 8'192; }) == "accepted");
  CHECK(refusal_with([](auto& t) { t.servers[0].count = 8'193; }) ==
        "t.json: /servers: expected at most 65536 devices, got 65544");
  CHECK(refusal_with([](auto& t) { t.servers[0].count = 2'000'000'000; }) ==
        "t.json: /servers: expected at most 65536 devices, got 16000000000");
}

TEST_CASE("All faults are reported together") {
  CHECK(refusal_with([](auto& t) {
          t.servers[0].device = "none";
          t.servers[0].nics.clear();
          t.network.reset();
        }) ==
        "t.json: /servers/0/device: expected a device kind of this file (\"V100\"), got \"none\"\n"
        "t.json: /servers/0/nics: expected at least one NIC, as there are several servers, got "
        "none\n"
        "t.json: /network: expected a network, as there are several servers, got none");
}

}  // namespace
}  // namespace dapple
