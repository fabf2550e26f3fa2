// Small clusters for tests that work their numbers by hand. A link of bytes_per_ns(1) moves n bytes
// in n ns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dapple/topology/description.h"

namespace dapple::small {

constexpr Bandwidth bytes_per_ns(std::int64_t count) {
  return {count * kNanosecondsPerSecond};
}

TopologyDescription description_of(std::vector<ServerGroup> groups);

/// Servers alike, switched inside.
struct ClusterFigures {
  std::int32_t servers = 1;
  std::int32_t devices = 1;  // per server
  Link inside{bytes_per_ns(1), {}};
  std::vector<Link> nics{Link{bytes_per_ns(1), {}}};
};

TopologyDescription cluster(const ClusterFigures& figures);

/// One server whose devices have a direct link where `direct` has a 1, and else the host path.
TopologyDescription mesh(const std::vector<std::vector<int>>& direct, const Link& link,
                         const Link& host_path);

/// One server in which each ordered pair of devices has a link of its own, so nothing is shared.
TopologyDescription full_mesh(std::size_t devices, const Link& link);

}  // namespace dapple::small
