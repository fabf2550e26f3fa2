// The order of a graph's nodes with the narrowest cuts on average, found exactly where the graph
// has few down-sets.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/interop/graphs/narrow_order.h"
#include "dapple/profile/down_sets.h"

namespace dapple::interop {

/// How wide the cuts of an order are, the less the better.
struct OrderWidth {
  /// The sum over the nodes of their work times the bytes alive before or behind them, whichever
  /// are fewer, but for the two ends of the order, where there is no cut: the mean width of a cut
  /// that falls anywhere in the work with equal chance and is moved to the narrower end of the node
  /// that it falls into, times all work.
  Wide over_work = 0;
  /// The sum over all cuts of the bytes that are alive.
  Wide over_cuts = 0;

  friend auto operator<=>(const OrderWidth&, const OrderWidth&) = default;
};

/// Requires: `order` has every node of the graph, each after its inputs; the products fit
/// (are_widths_small()). O(nodes + edges).
OrderWidth width_of(const TensorGraph& graph, const std::vector<std::int32_t>& order);

/// Whether widths are small enough to be computed: no order's is above 2^120. O(nodes).
bool are_widths_small(const TensorGraph& graph);

/// Returns the order of the least width, by a dynamic programme over the down-sets of the graph. Of
/// several, each node is the one with the lowest position that leads to one of them.
/// O(down-sets * width of the graph). Requires: are_widths_small().
std::vector<std::int32_t> exact_order(const TensorGraph& graph, const DownSets& sets);

}  // namespace dapple::interop
