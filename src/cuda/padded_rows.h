// Rows with gaps behind them, so that each begins where tensor cores want it.
#pragma once

#include "dapple/cuda/tensor.h"

namespace dapple::cuda {

/// The least stride, in numbers, of rows that all begin at multiples of 16 bytes.
std::int64_t padded_stride(std::int64_t columns, Type type);

/// From rows of one stride to rows of another. What lies in the gaps stays. Requires: the same
/// type, and strides that are not less than `columns`.
struct RowCopy {
  std::int64_t columns = 0;
  View from;
  std::int64_t from_stride = 0;
  View to;
  std::int64_t to_stride = 0;
};
void copy_rows(const Stream& stream, const RowCopy& rows);

}  // namespace dapple::cuda
