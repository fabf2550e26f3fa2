// Packs Hamiltonian cycles into a directed mesh of lanes such that no two of them share a lane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dapple/core/quantity.h"

namespace dapple {

/// Identical parallel lanes from one node to another.
struct Lanes {
  std::int32_t count = 0;
  Bandwidth each;
};

/// The lanes between any two nodes: entry from * size + to; the diagonal has no lanes.
struct LaneMesh {
  std::size_t size = 0;
  std::vector<Lanes> lanes;

  const Lanes& at(std::size_t from, std::size_t to) const { return lanes[from * size + to]; }
};

/// A directed cycle through all nodes of a mesh, which uses one lane of each of its arcs.
struct Ring {
  std::vector<std::size_t> nodes;
  /// The bandwidth of the narrowest lane.
  Bandwidth bandwidth;
};

/// Returns an upper bound on the bandwidth of any packing: every ring crosses every cut, so the
/// lanes across the narrowest cut bound all rings together. Considers all cuts for up to ten nodes,
/// and above only the cuts around single nodes.
Bandwidth ring_bound(const LaneMesh& mesh);

/// Returns lane-disjoint rings of the largest total bandwidth found; among equal packings the first
/// in the order of the search. A depth-first search runs over pairs of a cycle and its reverse, and
/// if they do not reach ring_bound(), another one over all cycles. Each stops when ring_bound() is
/// reached or its limit of steps is used up; unless the limit was reached, the packing is optimal.
/// Requires: mesh.size >= 2.
std::vector<Ring> pack_lane_rings(const LaneMesh& mesh);

}  // namespace dapple
