#include "clusters.h"

#include <utility>

namespace dapple::small {

TopologyDescription description_of(std::vector<ServerGroup> groups) {
  TopologyDescription description;
  description.name = "small";
  DeviceKind kind;
  kind.name = "gpu";
  kind.memory = {kMaxCount};
  description.devices = {kind};
  description.servers = std::move(groups);
  description.network = Link{{kMaxCount}, {}};
  return description;
}

TopologyDescription cluster(const ClusterFigures& figures) {
  ServerGroup group;
  group.name = "node";
  group.device = "gpu";
  group.count = figures.servers;
  group.devices = figures.devices;
  group.links.port = figures.inside;
  for (const Link& link : figures.nics) {
    group.nics.push_back({.source = "", .link = link, .devices = {}});
  }
  return description_of({group});
}

TopologyDescription mesh(const std::vector<std::vector<int>>& direct, const Link& link,
                         const Link& host_path) {
  ServerGroup group;
  group.name = "node";
  group.device = "gpu";
  group.devices = static_cast<std::int32_t>(direct.size());
  group.links.kind = ServerLinks::Kind::Matrix;
  group.links.host_path = host_path;
  LinkKind kind;
  kind.name = "direct";
  kind.link = link;
  group.links.kinds = {kind};
  const auto size = static_cast<Eigen::Index>(direct.size());
  group.links.matrix = Eigen::MatrixXi::Constant(size, size, kNoLink);
  for (Eigen::Index from = 0; from < size; ++from) {
    for (Eigen::Index to = 0; to < size; ++to) {
      const auto row = static_cast<std::size_t>(from);
      if (direct[row][static_cast<std::size_t>(to)] == 1) group.links.matrix(from, to) = 0;
    }
  }
  return description_of({group});
}

TopologyDescription full_mesh(std::size_t devices, const Link& link) {
  std::vector<std::vector<int>> direct(devices, std::vector<int>(devices, 1));
  for (std::size_t i = 0; i < devices; ++i) direct[i][i] = 0;
  return mesh(direct, link, {bytes_per_ns(1), {}});
}

}  // namespace dapple::small
