// Sums over the rows of a matrix: the gradients of what is the same for all rows. Parts of the rows
// are summed up first, each by a block; how many is told by the matrix and not by the GPU, so that
// the order of the additions is the same on all.
#pragma once

#include "dapple/cuda/memory/tensor.h"

namespace dapple::cuda {

/// sums[column] += gradient[row, column] over the rows: of a bias. `sums` is Float32 and tells the
/// number of columns.
void add_column_sums(Device& device, View gradient, View sums);

enum class Target { Added, Overwritten };

/// The second step: what was in `sums`, or nothing, and the rows of `partials`. Both are Float32.
void sum_parts(const Stream& stream, View partials, Target target, View sums);

}  // namespace dapple::cuda
