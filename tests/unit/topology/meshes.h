// Topologies that the tests of this folder share, and what their routes go over.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/topology/description.h"
#include "dapple/topology/topology.h"

namespace dapple::meshes {

inline constexpr std::int64_t kGigabyte = 1'000'000'000;

using LaneCounts = std::vector<std::vector<int>>;

/// NVLink lanes between the GPUs of a DGX-1 with V100s, as `nvidia-smi topo -m` prints them on one.
inline const LaneCounts kDgx1 = {{0, 1, 1, 2, 2, 0, 0, 0}, {1, 0, 2, 1, 0, 2, 0, 0},
                                 {1, 2, 0, 2, 0, 0, 1, 0}, {2, 1, 2, 0, 0, 0, 0, 1},
                                 {2, 0, 0, 0, 0, 1, 1, 2}, {0, 2, 0, 0, 1, 0, 2, 1},
                                 {0, 0, 1, 0, 1, 2, 0, 2}, {0, 0, 0, 1, 2, 1, 2, 0}};

inline DeviceKind v100() {
  DeviceKind kind;
  kind.name = "V100";
  kind.memory = {16LL << 30};
  kind.reserved = {1LL << 30};
  return kind;
}

inline Link link(std::int64_t gigabytes_per_second, std::int64_t microseconds) {
  return {{gigabytes_per_second * kGigabyte}, {microseconds * 1000}};
}

/// A server whose devices reach each other over so many lanes of `lane_gigabytes` GB/s each, 0 for
/// none, with a host path of 10 GB/s and 9 us.
inline ServerGroup mesh_group(const LaneCounts& lanes, std::int64_t lane_gigabytes = 25) {
  ServerGroup group;
  group.name = "node";
  group.device = "V100";
  group.devices = static_cast<std::int32_t>(lanes.size());
  group.links.kind = ServerLinks::Kind::Matrix;
  group.links.host_path = link(10, 9);
  int most = 0;
  for (const auto& row : lanes) {
    for (const int count : row) most = std::max(most, count);
  }
  for (int count = 1; count <= most; ++count) {
    LinkKind kind;
    kind.name = "NV" + std::to_string(count);
    kind.link = link(count * lane_gigabytes, count);
    kind.lanes = count;
    group.links.kinds.push_back(kind);
  }
  const auto size = static_cast<Eigen::Index>(lanes.size());
  group.links.matrix = Eigen::MatrixXi::Constant(size, size, kNoLink);
  for (Eigen::Index from = 0; from < size; ++from) {
    for (Eigen::Index to = 0; to < size; ++to) {
      const auto row = static_cast<std::size_t>(from);
      group.links.matrix(from, to) = lanes[row][static_cast<std::size_t>(to)] - 1;
    }
  }
  return group;
}

inline TopologyDescription one_group(ServerGroup group) {
  TopologyDescription description;
  description.name = "mesh";
  description.devices = {v100()};
  description.servers = {std::move(group)};
  return description;
}

/// Two servers of eight V100s, switched inside, one NIC each.
inline TopologyDescription two_by_eight() {
  ServerGroup group;
  group.name = "node";
  group.count = 2;
  group.device = "V100";
  group.devices = 8;
  group.links.port = link(130, 5);
  group.nics = {{.source = "", .link = {{3'125'000'000}, {15'000}}, .devices = {}}};
  TopologyDescription description = one_group(group);
  description.network = Link{{3'000'000'000}, {2'000}};
  return description;
}

inline std::vector<DeviceIndex> devices(const std::vector<std::int32_t>& numbers) {
  std::vector<DeviceIndex> result;
  for (const std::int32_t number : numbers) result.push_back({number});
  return result;
}

inline std::vector<std::string> port_names(const Topology& topology, const Route& route) {
  std::vector<std::string> names;
  for (const PortIndex port : route.ports) {
    names.push_back(topology.ports()[port.position()].name);
  }
  return names;
}

}  // namespace dapple::meshes
