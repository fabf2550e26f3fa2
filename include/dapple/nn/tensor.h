// Numbers with a shape. The first dimension counts samples, so that samples [i, j) of a tensor lie
// together in memory: what replicas exchange are such ranges.
//
// Single precision, row by row (the last dimension is the fastest). Token numbers are held as
// floats too, exact up to 2^24.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dapple::nn {

using Shape = std::vector<std::int64_t>;

/// Product of the dimensions; 1 for none. O(dimensions).
std::int64_t count_of(const Shape& shape);

struct Tensor {
  Shape shape;
  std::vector<float> values;  // count_of(shape) of them

  std::int64_t samples() const { return shape.front(); }
};

/// All zero.
Tensor zeros(Shape shape);

/// Samples [begin, end). Requires: 0 <= begin <= end <= samples. O(values copied).
Tensor samples_of(const Tensor& tensor, std::int64_t begin, std::int64_t end);

}  // namespace dapple::nn
