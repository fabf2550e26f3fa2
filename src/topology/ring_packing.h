// Packs Hamiltonian rings into a directed mesh of lanes, so that no two rings share a lane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dapple/core/quantity.h"

namespace dapple {

/// Parallel lanes from one node to another, all alike.
struct Lanes {
  std::int32_t count = 0;
  Bandwidth each;
};

/// Entry from * size + to; the diagonal has no lanes.
struct LaneMesh {
  std::size_t size = 0;
  std::vector<Lanes> lanes;

  const Lanes& at(std::size_t from, std::size_t to) const { return lanes[from * size + to]; }
};

/// A directed cycle through all nodes of a mesh; it takes one lane of each arc on its way.
struct Ring {
  std::vector<std::size_t> nodes;
  Bandwidth bandwidth;  // of its narrowest lane
};

/// No packing of a mesh has more than this: every ring crosses every cut, so the lanes across the
/// narrowest cut bound all rings together. All cuts for up to ten nodes, else those around one
/// node.
Bandwidth ring_bound(const LaneMesh& mesh);

/// Lane-disjoint rings of the largest total bandwidth found; of equal packings the first in the
/// order of the search. A depth-first search first over pairs of a cycle and its reverse, then over
/// all cycles; each stops when ring_bound() is reached or its steps are used up. Without that stop
/// the packing is a largest one. Requires: mesh.size >= 2.
std::vector<Ring> pack_lane_rings(const LaneMesh& mesh);

}  // namespace dapple
