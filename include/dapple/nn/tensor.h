// Dense tensors. The first dimension counts samples, so that samples [i, j) of a tensor are
// contiguous in memory; replicas exchange such ranges.
//
// Values are single precision in row-major order (the last dimension varies fastest). Token numbers
// are stored as floats too, which are exact up to 2^24.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dapple::nn {

using Shape = std::vector<std::int64_t>;

/// Returns the product of the dimensions, which is 1 if there are none. O(dimensions).
std::int64_t count_of(const Shape& shape);

struct Tensor {
  Shape shape;
  /// The count_of(shape) values in row-major order.
  std::vector<float> values;

  std::int64_t samples() const { return shape.front(); }
};

/// Returns a tensor of that shape whose values are all zero.
Tensor zeros(Shape shape);

/// Returns a copy of samples [begin, end). Requires: 0 <= begin <= end <= samples. O(values
/// copied).
Tensor samples_of(const Tensor& tensor, std::int64_t begin, std::int64_t end);

}  // namespace dapple::nn
