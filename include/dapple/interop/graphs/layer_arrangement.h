// How the layers of a graph were put in an order.
#pragma once

#include <cstdint>
#include <optional>

#include "dapple/core/quantity.h"

namespace dapple::interop {

/// How the layers of a graph with several topological orders were arranged. A mean cut is the mean,
/// rounded down, of the bytes that cross a cut which falls anywhere in the layers' forwards and
/// backwards with equal chance and is moved to the narrower end of the layer that it falls into.
struct LayerArrangement {
  /// The number of the graph's down-sets (profile/down_sets.h); nothing if there are too many to
  /// find the least mean cut.
  std::optional<std::int64_t> down_sets;
  /// The mean cuts of the chosen order and of the greedy one, and the least of any order.
  Bytes mean_cut;
  Bytes greedy_mean_cut;
  std::optional<Bytes> least_mean_cut;
};

}  // namespace dapple::interop
