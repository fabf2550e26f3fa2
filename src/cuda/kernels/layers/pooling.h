// The largest of each square window. Of equal numbers the first counts, row by row.
#pragma once

#include "dapple/cuda/memory/tensor.h"

namespace dapple::cuda {

/// Planes are channels of samples.
struct Windows {
  std::int64_t planes = 0;
  std::int64_t height = 0;  // of the input
  std::int64_t width = 0;
  std::int64_t kernel = 0;
  std::int64_t stride = 0;

  std::int64_t rows() const { return (height - kernel) / stride + 1; }
  std::int64_t columns() const { return (width - kernel) / stride + 1; }
};

/// `pixels`, Int32, says for each window which pixel of its plane it was.
void max_pool(const Stream& stream, const Windows& windows, View input, View output, View pixels);

/// Each pixel's gradient is the sum of those of the windows that it is the largest of.
void max_pool_gradient(const Stream& stream, const Windows& windows, View pixels,
                       View output_gradient, View input_gradient);

}  // namespace dapple::cuda
