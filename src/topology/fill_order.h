// In which order plans fill the devices of one server with a link matrix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dapple {

/// Width of the hop between two nodes, the same both ways: entry from * size + to.
struct HopWidths {
  std::size_t size = 0;
  std::vector<std::int64_t> widths;

  std::int64_t at(std::size_t from, std::size_t to) const { return widths[from * size + to]; }
};

/// A path through all nodes whose narrowest hop is widest, then of the largest sum of hops, then
/// lexicographically first. Exact for up to ten nodes, O(size^2 * 2^size); above, the best of the
/// paths that go on by the widest hop (the lowest node of equal ones) from each of the first
/// sixteen nodes, O(size^2). Requires: size >= 1, widths > 0.
std::vector<std::size_t> widest_path(const HopWidths& hops);

}  // namespace dapple
