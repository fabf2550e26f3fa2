// Softmax and the negative logarithm of the right answer's share, row by row.
#pragma once

#include "dapple/cuda/memory/tensor.h"

namespace dapple::cuda {

/// A row of `classes` scores for each position of each sample.
struct CrossEntropy {
  std::int64_t classes = 0;
  std::int64_t stride = 0;  // numbers from a row of scores to the next
  View scores;
  View targets;   // Int32, one per row
  View log_sums;  // Float32, one per row: of the exponentials of the scores
};

/// Writes log_sums, and to `losses` (Float32, one per sample) the mean over a sample's rows of
/// log_sum - score of the target.
void cross_entropy(Device& device, const CrossEntropy& arrays, View losses);

/// Turns the scores into their gradients: (softmax - right answer) slopes[sample] / rows of a
/// sample.
void cross_entropy_gradient(const Stream& stream, const CrossEntropy& arrays, View slopes);

}  // namespace dapple::cuda
