// Layer norm over rows: n = (x - mean) / sqrt(variance + 1e-5), y = n scale + shift.
#pragma once

#include "dapple/cuda/tensor.h"

namespace dapple::cuda {

/// Mean and 1 / deviation of each row, Float32: what a backward needs beside the input.
struct RowStatistics {
  View means;
  View inverses;
};

/// Of a tensor [2, rows].
RowStatistics row_statistics(const Tensor& tensor);

struct NormForward {
  std::int64_t columns = 0;
  View input;
  View scale;
  View shift;
  View output;
  RowStatistics statistics;
};
void normalise(const Stream& stream, const NormForward& arrays);

/// With h the output's gradient times scale: (h - mean(h) - n mean(h n)) / deviation, and what
/// comes around the norm added to it. Source: Ba, Kiros and Hinton 2016, with the chain rule.
struct NormBackward {
  std::int64_t columns = 0;
  View input;
  View scale;
  RowStatistics statistics;
  View output_gradient;
  View input_gradient;
  View addend = {};  // shaped as the input; nothing is added if empty
};
void normalise_backward(const Stream& stream, const NormBackward& arrays);

}  // namespace dapple::cuda
