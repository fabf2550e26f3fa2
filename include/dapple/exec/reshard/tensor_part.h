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
};

/// Returns how many numbers the part has, without padding.
std::int64_t count_of(const TensorPart& part);

/// Returns how many numbers both parts have. O(ranges of positions).
std::int64_t count_of_common(const TensorPart& a, const TensorPart& b);

/// Whether a rank that holds a part sends what a rank of that number lacks, where other ranks have
/// the same part: each number of a rank has one sender, and a rank that has the part is its own.
inline bool is_sender(const TensorPart& part, std::int64_t receiver) {
  return receiver % part.of_sample.copies == part.of_sample.copy;
}

/// Returns the numbers that both parts have, of a tensor that holds the first one. Both ranks have
/// them in the same order. O(numbers).
std::vector<float> take_common(std::span<const float> held, const TensorPart& own,
                               const TensorPart& other);
/// Sets such numbers in a tensor that holds the first part. Throws Bug unless there are as many.
void put_common(std::span<const float> common, const TensorPart& own, const TensorPart& other,
                std::span<float> held);

}  // namespace dapple::exec
