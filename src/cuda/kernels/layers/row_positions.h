// The positions of a sequence that a rank has of it, in one or two runs.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <limits>

namespace dapple::cuda {

/// The position of each row: those before `split` begin at `first`, the others at `second`; all
/// rows of a whole sequence by default.
struct RowPositions {
  std::int32_t split = std::numeric_limits<std::int32_t>::max();
  std::int32_t first = 0;
  std::int32_t second = 0;

  __host__ __device__ std::int32_t of(std::int32_t row) const {
    return row < split ? first + row : second + (row - split);
  }
  /// Returns the first row whose position is `position` or a later one. Requires: positions ascend.
  __host__ __device__ std::int32_t first_row_from(std::int32_t position) const {
    if (position <= first) return 0;
    if (position - first < split) return position - first;
    return position <= second ? split : position - second + split;
  }
};

}  // namespace dapple::cuda
