// The order in which plans fill the devices of a server with a link matrix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dapple {

/// The width of the hop between any two nodes, equal in both directions: entry from * size + to.
struct HopWidths {
  std::size_t size = 0;
  std::vector<std::int64_t> widths;

  std::int64_t at(std::size_t from, std::size_t to) const { return widths[from * size + to]; }
};

/// Returns the path through all nodes with the widest bottleneck hop, among these one with the
/// largest sum of widths, and among these the lexicographically first. Exact for up to ten nodes,
/// O(size^2 * 2^size); above, the best of the greedy paths that start at each of the first sixteen
/// nodes and always follow the widest hop (to the lowest node among equals), O(size^2).
/// Requires: size >= 1, widths > 0.
std::vector<std::size_t> widest_path(const HopWidths& hops);

}  // namespace dapple
