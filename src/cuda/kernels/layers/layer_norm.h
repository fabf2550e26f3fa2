// Layer norm over rows: n = (x - mean) / sqrt(variance + 1e-5), y = n scale + shift.
#pragma once

#include "dapple/cuda/memory/tensor.h"

namespace dapple::cuda {

/// Mean and 1 / deviation of each row, Float32: what a backward needs beside the input.
struct RowStatistics {
  View means;
  View inverses;
};

/// Of a tensor [2, rows].
RowStatistics row_statistics(const DeviceTensor& tensor);

struct NormForward {
  std::int64_t columns = 0;
  View input;
  View scale;
  View shift;
  View output;
  RowStatistics statistics;
};
void normalise(const Stream& stream, const NormForward& arrays);

/// Rows whose part of the gradients of scale and shift a backward adds up first.
inline constexpr int kRowsOfPart = 32;

/// With h the output's gradient times scale: (h - mean(h) - n mean(h n)) / deviation, and what
/// comes around the norm added to it. With it go the gradients of scale and shift, which are sums
/// over the rows in an order that does not change. Source: Ba, Kiros and Hinton 2016, with the
/// chain rule.
struct NormBackward {
  std::int64_t columns = 0;
  View input;
  View scale;
  RowStatistics statistics;
  View output_gradient;
  View input_gradient;
  View sums;         // [scale, shift], two arrays one after another, Float32
  View addend = {};  // shaped as the input; nothing is added if empty
};
void normalise_backward(Device& device, const NormBackward& arrays);

}  // namespace dapple::cuda
