#include "cuda/kernels/column_sums.h"

#include "cuda/kernels/launch.h"
#include "cuda/kernels/numbers.h"
#include "cuda/kernels/reductions.h"

namespace dapple::cuda {
namespace {

constexpr int kRowThreads = 8;       // threads along a column
constexpr int kPartRowThreads = 32;  // the same for summing the parts

/// Each block sums a part of the rows for some columns: partials[part][column].
template <class Number, int kCount>
__global__ void partial_kernel(const Number* gradient, std::int64_t rows, int columns,
                               float* partials) {
  const int column = static_cast<int>(blockIdx.x * kWarp + threadIdx.x) * kCount;
  float sums[kCount] = {};
  if (column < columns) {
    const std::int64_t first_row = std::int64_t{blockIdx.y} * kRowThreads + threadIdx.y;
    const std::int64_t stride = std::int64_t{gridDim.y} * kRowThreads;
    for (std::int64_t row = first_row; row < rows; row += stride) {
      const auto g = load<Number, kCount>(gradient + row * columns + column);
      for (int k = 0; k < kCount; ++k) sums[k] += to_float(g.values[k]);
    }
  }
  for_each_column_sum<kRowThreads>(sums, [&](int k, float sum) {
    if (column < columns) partials[std::int64_t{blockIdx.y} * columns + column + k] = sum;
  });
}

template <Target kTarget>
__global__ void total_kernel(const float* partials, std::int64_t parts, std::int64_t columns,
                             float* sums) {
  const std::int64_t column = std::int64_t{blockIdx.x} * kWarp + threadIdx.x;
  float own[1] = {};
  if (column < columns) {
    for (std::int64_t part = threadIdx.y; part < parts; part += kPartRowThreads) {
      own[0] += partials[part * columns + column];
    }
  }
  for_each_column_sum<kPartRowThreads>(own, [&](int, float sum) {
    if (column < columns) sums[column] = (kTarget == Target::Added ? sums[column] : 0) + sum;
  });
}

/// Returns enough parts to fill a large GPU with blocks, while each thread adds several rows.
std::int64_t parts_of(std::int64_t rows, unsigned blocks_along_row) {
  constexpr unsigned kBlocks = 1'024;
  constexpr std::int64_t kRowsPerThread = 8;
  return std::clamp<std::int64_t>(kBlocks / blocks_along_row, 1,
                                  blocks_for(rows, kRowThreads * kRowsPerThread));
}

}  // namespace

void add_column_sums(Device& device, View gradient, View sums) {
  const std::int64_t columns = sums.count;
  const std::int64_t rows = gradient.count / columns;
  with_packs(gradient.type, columns, {gradient}, [&](auto of, auto pack) {
    using Number = typename decltype(of)::Number;
    const unsigned blocks = blocks_for(columns, kWarp * pack.value);
    const std::int64_t parts = parts_of(rows, blocks);
    const DeviceTensor partials = make_tensor(device, {parts, columns}, Type::Float32);
    launch(partial_kernel<Number, pack.value>,
           {{blocks, static_cast<unsigned>(parts), 1}, {kWarp, kRowThreads, 1}}, device.compute(),
           numbers_in<Number>(gradient), rows, static_cast<int>(columns),
           numbers_in<float>(partials.view()));
    sum_parts(device.compute(), partials.view(), Target::Added, sums);
  });
}

void sum_parts(const Stream& stream, View partials, Target target, View sums) {
  const auto kernel =
      target == Target::Added ? total_kernel<Target::Added> : total_kernel<Target::Overwritten>;
  launch(kernel, {{blocks_for(sums.count, kWarp), 1, 1}, {kWarp, kPartRowThreads, 1}}, stream,
         numbers_in<float>(partials), partials.count / sums.count, sums.count,
         numbers_in<float>(sums));
}

}  // namespace dapple::cuda
