// Rows with gaps behind them, so that each begins where tensor cores want it.
#pragma once

#include "dapple/cuda/memory/tensor.h"

namespace dapple::cuda {

/// The least stride, in numbers, of rows that all begin at multiples of 16 bytes.
std::int64_t padded_stride(std::int64_t columns, Type type);

/// The tensor with rows of `columns` numbers that begin `stride` numbers apart, its last dimension:
/// itself where they do, else a copy. In gaps lies whatever was there.
DeviceTensor with_stride(Device& device, DeviceTensor tensor, std::int64_t columns,
                         std::int64_t stride);

}  // namespace dapple::cuda
