// Softmax cross-entropy: softmax and the negative logarithm of the target's probability, row by
// row.
#pragma once

#include "dapple/cuda/memory/tensor.h"

namespace dapple::cuda {

/// The arrays, with a row of `classes` scores for each position of each sample. Of several ranks
/// each may have the scores of some classes.
struct CrossEntropy {
  std::int64_t classes = 0;
  // The class of the first score.
  std::int64_t first_class = 0;
  // The distance between rows of scores, in numbers.
  std::int64_t stride = 0;
  View scores;
  View targets;  // Int32, one per row
  // Float32, one per row: the logarithm of the sum of the exponentials of the scores.
  View log_sums;
};

/// Writes log_sums, and to `losses` (Float32, one per sample) the mean of log_sum - score of the
/// target over a sample's rows.
void cross_entropy(Device& device, const CrossEntropy& arrays, View losses);

/// The numbers that a rank says of each row.
inline constexpr std::int64_t kNumbersOfRowPart = 3;
/// Writes what one of several ranks says of its scores; it may have none. Requires: Float32.
void cross_entropy_part(const Stream& stream, const CrossEntropy& arrays, View parts);
/// Does what cross_entropy() does, given such numbers of all ranks, those of one after those of
/// another.
void join_cross_entropy(Device& device, const CrossEntropy& arrays, View parts, View losses);

/// Replaces the scores by their gradients: (softmax - one-hot target) slopes[sample] / rows of a
/// sample.
void cross_entropy_gradient(const Stream& stream, const CrossEntropy& arrays, View slopes);

}  // namespace dapple::cuda
