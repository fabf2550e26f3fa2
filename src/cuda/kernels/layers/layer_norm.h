// Layer normalization of rows: n = (x - mean) / sqrt(variance + 1e-5), y = n scale + shift; and RMS
// normalization, n = x / sqrt(mean(x^2) + 1e-5), y = n scale, which is computed as if the mean were
// zero.
#pragma once

#include "dapple/cuda/memory/tensor.h"
#include "dapple/profile/operation.h"

namespace dapple::cuda {

/// The mean and 1 / deviation of each row, Float32, which a backward needs besides the input.
struct RowStatistics {
  View means;
  View inverses;
};

/// Returns the views of means and inverses in a tensor [2, rows].
RowStatistics row_statistics(const DeviceTensor& tensor);

struct NormForward {
  NormKind kind = NormKind::LayerNorm;
  std::int64_t columns = 0;
  View input;
  View scale;
  // Empty for an RMS norm.
  View shift;
  View output;
  RowStatistics statistics;
};
void normalise(const Stream& stream, const NormForward& arrays);

/// The number of rows whose contributions to the gradients of scale and shift are summed first.
inline constexpr int kRowsOfPart = 32;

/// The arrays of the backward. With h the output's gradient times scale, the input gradient is
/// (h - mean(h) - n mean(h n)) / deviation, without mean(h) for an RMS norm, plus `addend`, the
/// gradient of a residual connection around the norm. The backward also computes the gradients of
/// scale and shift, which are sums over the rows in a fixed order. Source: Ba, Kiros and Hinton
/// 2016, with the chain rule.
struct NormBackward {
  NormKind kind = NormKind::LayerNorm;
  std::int64_t columns = 0;
  View input;
  View scale;
  RowStatistics statistics;
  View output_gradient;
  View input_gradient;
  // [scale, shift], two Float32 arrays one after another, the second one without meaning for an RMS
  // norm.
  View sums;
  // Shaped as the input; empty: nothing is added.
  View addend = {};
};
void normalise_backward(Device& device, const NormBackward& arrays);

}  // namespace dapple::cuda
