// The part of an activation, or of a gradient of one, that a rank of a group holds, and what parts
// of two ranks have in common. All parts are of one tensor, whose samples have the same numbers of
// positions, with the same number of columns each.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "dapple/nn/shared_layers.h"
#include "dapple/plan/plan.h"

namespace dapple::exec {

struct TensorPart {
  /// Samples of the micro-batch.
  SampleRange samples;
  nn::OutputPart of_sample;
  /// The number of the rank that holds it in its group, and how many ranks the group has.
  std::int64_t rank = 0;
  std::int64_t ranks = 1;
};

/// Returns how many numbers the part has, without padding.
std::int64_t count_of(const TensorPart& part);

/// Returns how many numbers both parts have. O(ranges of positions).
std::int64_t count_of_common(const TensorPart& a, const TensorPart& b);

/// Returns how many numbers the rank of one part sends to that of another one, or keeps, if it is
/// the same: numbers that both parts have. Each number of a receiver has one sender. Where several
/// ranks have the same part, they serve the ranks of a group in turn, so that a rank that has the
/// part already is its own sender; where they are more than these, several serve each of them, and
/// send as much each. O(ranges of positions).
std::int64_t count_of_sent(const TensorPart& from, const TensorPart& to);

/// Returns these numbers, of a tensor that holds the first part, in the order in which it has them.
/// O(numbers).
std::vector<float> take_sent(std::span<const float> held, const TensorPart& from,
                             const TensorPart& to);
/// Sets these numbers in a tensor that holds the second part. Throws Bug unless there are as many.
void put_sent(std::span<const float> sent, const TensorPart& from, const TensorPart& to,
              std::span<float> held);

}  // namespace dapple::exec
