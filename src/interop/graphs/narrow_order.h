// An order of a graph's nodes in which few bytes are alive between neighbours, so that a pipeline
// cut there sends little.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/core/quantity.h"

namespace dapple::interop {

/// Nodes of a graph by position; `inputs` without repetitions.
struct TensorGraph {
  std::vector<Bytes> outputs;
  std::vector<std::vector<std::int32_t>> inputs;
};

/// A topological order: among the nodes whose inputs are placed, the one that leaves the fewest
/// bytes alive, then the lowest position. A node without inputs waits for its first consumer and
/// stands right before it. Nodes on or behind a cycle are missing from the result.
/// O((nodes + edges) log nodes).
std::vector<std::int32_t> narrow_order(const TensorGraph& graph);

}  // namespace dapple::interop
