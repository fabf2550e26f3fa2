// Turns the graph of another tool into the layers of a profile: their order, names and inputs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/interop/graphs/layer_arrangement.h"
#include "dapple/profile/model_profile.h"

namespace dapple::interop {

/// A node that becomes a layer.
struct LayerNode {
  // Unique among the nodes.
  std::int64_t number = 0;
  // The operator with its arguments, such as "Conv2d(3, 64)", or a plain name.
  std::string description;
  Bytes parameters;
  Measurement measurement;
  std::vector<LayerVariant> variants = {};
  // The positions of the nodes whose outputs this one takes, ascending and without repetitions.
  std::vector<std::int32_t> inputs;
};

/// Returns a unique name for each node: its description, "layer_7", if it has no arguments and no
/// other node shares it, otherwise the operator with the node's number, "Conv2d.76". Names are
/// unique because a description without its arguments never contains a point. O(nodes log nodes).
std::vector<std::string> layer_names(const std::vector<LayerNode>& nodes);

/// An order of nodes, and how it was chosen.
struct LayerOrder {
  // Some nodes are missing if the graph has a cycle.
  std::vector<std::int32_t> nodes;
  std::optional<LayerArrangement> arrangement = std::nullopt;
};

/// Returns the order of exact_order.h where the graph has few enough down-sets and that order's
/// mean cut is at least a hundredth below that of the order of narrow_order.h; otherwise the
/// latter.
LayerOrder layer_order(const std::vector<LayerNode>& nodes);

/// A cycle of a graph.
struct Cycle {
  // The nodes of the cycle, beginning with the lowest: "node3 -> node7 -> node3".
  std::string text;
  // The position of that lowest node.
  std::size_t first = 0;
};
/// Finds a cycle of the graph. Requires: `order` is that of layer_order(nodes), and some node is
/// missing from it.
Cycle describe_cycle(const std::vector<LayerNode>& nodes, const std::vector<std::int32_t>& order);

/// Returns the nodes as layers. Requires: `order` contains every node, each after its inputs.
std::vector<Layer> layers_in_order(const std::vector<LayerNode>& nodes,
                                   const std::vector<std::int32_t>& order);

}  // namespace dapple::interop
