#include "padded_rows.h"

#include "launch.h"
#include "numbers.h"

namespace dapple::cuda {
namespace {

/// A block for each row. A thread has several loads on their way before it stores.
template <class Number>
__global__ void copy_kernel(std::int64_t columns, const Number* from, std::int64_t from_stride,
                            Number* to, std::int64_t to_stride) {
  constexpr int kAtATime = 8;
  const Number* source = from + blockIdx.x * from_stride;
  Number* target = to + blockIdx.x * to_stride;
  const auto threads = static_cast<std::int64_t>(blockDim.x);
  for (std::int64_t first = threadIdx.x; first < columns; first += threads * kAtATime) {
    Number numbers[kAtATime];
    for (int k = 0; k < kAtATime; ++k) {
      const std::int64_t column = first + k * threads;
      if (column < columns) numbers[k] = source[column];
    }
    for (int k = 0; k < kAtATime; ++k) {
      const std::int64_t column = first + k * threads;
      if (column < columns) target[column] = numbers[k];
    }
  }
}

}  // namespace

std::int64_t padded_stride(std::int64_t columns, Type type) {
  const std::int64_t unit = kWidestAccess / size_of(type);
  return (columns + unit - 1) / unit * unit;
}

void copy_rows(const Stream& stream, const RowCopy& rows) {
  constexpr unsigned kThreads = 256;
  const std::int64_t count = rows.to.count / rows.to_stride;
  with_floats(rows.from.type, [&](auto of) {
    using Number = typename decltype(of)::Number;
    launch(copy_kernel<Number>, {{blocks_for(count, 1), 1, 1}, {kThreads, 1, 1}}, stream,
           rows.columns, numbers_in<Number>(rows.from), rows.from_stride,
           numbers_in<Number>(rows.to), rows.to_stride);
  });
}

}  // namespace dapple::cuda
