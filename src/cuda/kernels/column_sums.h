// Sums over the rows of a matrix, which are the gradients of parameters that all rows share. Parts
// of the rows are summed first, one per block; their number depends on the matrix and not on the
// GPU, so that the order of additions is the same on all GPUs.
#pragma once

#include "dapple/cuda/memory/tensor.h"

namespace dapple::cuda {

/// Computes sums[column] += gradient[row, column] over the rows, the gradient of a bias. `sums` is
/// Float32 and determines the number of columns.
void add_column_sums(Device& device, View gradient, View sums);

enum class Target { Added, Overwritten };

/// Performs the second step: adds the rows of `partials` to `sums`, or to zero. Both are Float32.
void sum_parts(const Stream& stream, View partials, Target target, View sums);

}  // namespace dapple::cuda
