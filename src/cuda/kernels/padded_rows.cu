#include "cuda/kernels/padded_rows.h"

#include <utility>

#include "cuda/kernels/launch.h"
#include "cuda/kernels/numbers.h"

namespace dapple::cuda {
namespace {

/// Uses one block per row. Each thread has several loads in progress before it stores.
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

std::int64_t aligned_columns(std::int64_t columns, Type type) {
  const std::int64_t unit = kWidestAccess / size_of(type);
  return columns / unit * unit;
}

DeviceTensor with_stride(Device& device, DeviceTensor tensor, std::int64_t columns,
                         std::int64_t stride) {
  const std::int64_t from_stride = tensor.shape.back();
  if (from_stride == stride) return tensor;
  nn::Shape shape = tensor.shape;
  shape.back() = stride;
  DeviceTensor copy = make_tensor(device, std::move(shape), tensor.type);
  constexpr unsigned kThreads = 256;
  with_floats(tensor.type, [&](auto of) {
    using Number = typename decltype(of)::Number;
    launch(copy_kernel<Number>, {{blocks_for(copy.count() / stride, 1), 1, 1}, {kThreads, 1, 1}},
           device.compute(), columns, numbers_in<Number>(tensor.view()), from_stride,
           numbers_in<Number>(copy.view()), stride);
  });
  return copy;
}

}  // namespace dapple::cuda
