// Rows with padding, so that each starts at an address that is aligned for tensor cores.
#pragma once

#include "dapple/cuda/memory/tensor.h"

namespace dapple::cuda {

/// Returns the least stride, in numbers, for which all rows start at multiples of 16 bytes.
std::int64_t padded_stride(std::int64_t columns, Type type);

/// Returns the greatest number of leading columns of such rows that fill a multiple of 16 bytes.
std::int64_t aligned_columns(std::int64_t columns, Type type);

/// Returns the tensor with rows of `columns` numbers that start `stride` numbers apart, which is
/// then its last dimension: the tensor itself if they already do, else a copy. The padding is
/// undefined.
DeviceTensor with_stride(Device& device, DeviceTensor tensor, std::int64_t columns,
                         std::int64_t stride);

}  // namespace dapple::cuda
