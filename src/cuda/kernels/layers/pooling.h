// Max pooling over square windows. Of equal numbers the first, in row-major order, counts.
#pragma once

#include "dapple/cuda/memory/tensor.h"

namespace dapple::cuda {

/// The windows of all planes, which are the channels of samples.
struct Windows {
  std::int64_t planes = 0;
  // The size of the input.
  std::int64_t height = 0;
  std::int64_t width = 0;

  std::int64_t kernel = 0;
  std::int64_t stride = 0;

  std::int64_t rows() const { return (height - kernel) / stride + 1; }
  std::int64_t columns() const { return (width - kernel) / stride + 1; }
};

/// Writes the maxima, and to `pixels` (Int32) the position of each maximum in its plane.
void max_pool(const Stream& stream, const Windows& windows, View input, View output, View pixels);

/// Computes each pixel's gradient as the sum of those of the windows of which it is the maximum.
void max_pool_gradient(const Stream& stream, const Windows& windows, View pixels,
                       View output_gradient, View input_gradient);

}  // namespace dapple::cuda
