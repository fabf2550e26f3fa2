// How near the experts of positions come to be others: the margin between the smallest score that
// is chosen and the largest one that is not. Where it is no larger than rounding, layers that add
// up in another order may choose another expert, whose outputs and gradients are other numbers.
#pragma once

#include <cstdint>
#include <optional>

#include "dapple/nn/tensor.h"

namespace dapple::nn {

/// The two scores of a position on either side of the choice, as probabilities: all scores of a
/// position, through a softmax over all experts, add up to one.
struct RoutingMargin {
  /// The position's number among all that were routed, from zero.
  std::int64_t position = 0;
  double chosen = 0;
  double next = 0;

  double size() const { return chosen - next; }
};

/// The smallest margin of all positions that one mixture of experts has routed.
class RoutingMargins {
 public:
  /// Forgets all positions.
  void clear() { *this = {}; }
  /// Adds positions by their scores before the softmax, [positions, experts], of which the
  /// `per_token` largest are chosen. O(scores * log experts).
  void add(const Tensor& scores, std::int64_t per_token);
  /// Returns the smallest margin, of equals the first; nothing if no position has been routed, or
  /// if all experts are chosen.
  const std::optional<RoutingMargin>& smallest() const { return smallest_; }

 private:
  std::int64_t positions_ = 0;
  std::optional<RoutingMargin> smallest_;
};

}  // namespace dapple::nn
