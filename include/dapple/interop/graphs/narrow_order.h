// Orders the nodes of a graph such that few bytes are alive between consecutive nodes, so that
// little data crosses the stage boundaries of a pipeline.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/core/quantity.h"

namespace dapple::interop {

/// The nodes of a graph by position.
struct TensorGraph {
  // The size of each node's output.
  std::vector<Bytes> outputs;
  // The nodes whose outputs each node takes, without repetitions.
  std::vector<std::vector<std::int32_t>> inputs;
  // The time of each node's forward and backward.
  std::vector<Duration> work;
};

/// Returns a topological order by a greedy rule: among the nodes whose inputs are placed, the next
/// is the one that leaves the fewest bytes alive, with ties broken by the lowest position. A node
/// without inputs is placed immediately before its first consumer. Nodes on or behind a cycle are
/// missing from the result. O((nodes + edges) log nodes).
std::vector<std::int32_t> narrow_order(const TensorGraph& graph);

}  // namespace dapple::interop
