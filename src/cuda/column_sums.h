// Sums over the rows of a matrix: the gradients of what is the same for all rows.
#pragma once

#include "dapple/cuda/tensor.h"
#include "layer_norm.h"

namespace dapple::cuda {

/// sums[column] += gradient[row, column] over the rows: of a bias. `sums` is Float32 and tells the
/// number of columns. The order of the additions does not change.
void add_column_sums(Device& device, View gradient, View sums);

/// Of a norm: [scale, shift], two arrays one after another, which are overwritten.
struct NormParameterGradients {
  View input;
  RowStatistics statistics;
  View output_gradient;
  View sums;  // Float32, twice as many as columns
};
void sum_norm_gradients(Device& device, const NormParameterGradients& arrays);

}  // namespace dapple::cuda
