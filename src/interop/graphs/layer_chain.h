// From a foreign graph to a chain of layers: an order, names, inputs by their new positions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/profile/model_profile.h"
#include "interop/graphs/narrow_order.h"

namespace dapple::interop {

/// A node that becomes a layer, with a number that no other has.
struct LayerNode {
  std::int64_t number = 0;
  std::string description;  // "Conv2d(3, 64)", or a plain name
  Bytes parameters;
  Measurement measurement;
  std::vector<std::int32_t> inputs;  // positions, ascending, each once
};

/// "layer_7" as it stands where only one node is called so and it has no arguments; else with the
/// node's number, "Conv2d.76". A stem has no point in it, so no two names are equal.
/// O(nodes log nodes).
std::vector<std::string> layer_names(const std::vector<LayerNode>& nodes);

/// The order of narrow_order.h; shorter than the nodes if there is a cycle.
std::vector<std::int32_t> layer_order(const std::vector<LayerNode>& nodes);

/// "node3 -> node7 -> node3", from the lowest node of a cycle on, and that node's position.
struct Cycle {
  std::string text;
  std::size_t first = 0;
};
/// Requires: `order` is layer_order(nodes), and some node is missing from it.
Cycle describe_cycle(const std::vector<LayerNode>& nodes, const std::vector<std::int32_t>& order);

/// The nodes as layers. Requires: `order` holds each of them, behind its inputs.
std::vector<Layer> layers_in_order(const std::vector<LayerNode>& nodes,
                                   const std::vector<std::int32_t>& order);

}  // namespace dapple::interop
