#include "layer_norm.h"

#include "launch.h"
#include "numbers.h"
#include "reductions.h"

namespace dapple::cuda {
namespace {

constexpr int kRowsPerBlock = 4;  // a warp each
constexpr float kLeastVariance = 1e-5F;

/// Row of this thread's warp.
__device__ std::int64_t row_number() {
  return static_cast<std::int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / kWarp;
}

/// Calls `visit(first)` with the first column of each pack of this thread.
template <int kCount, class Visit>
__device__ void for_each_pack(int columns, const Visit& visit) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int column = lane * kCount; column < columns; column += kWarp * kCount) visit(column);
}

/// The row is read three times; only the first time it is not in the nearest cache.
template <class Number, int kCount>
__global__ void normalise_kernel(int columns, std::int64_t rows, const Number* input,
                                 const Number* scale, const Number* shift, Number* output,
                                 float* means, float* inverses) {
  const std::int64_t row = row_number();
  if (row >= rows) return;
  const Number* from = input + row * columns;
  const auto share = 1 / static_cast<float>(columns);
  float sum = 0;
  for_each_pack<kCount>(columns, [&](int column) {
    const auto x = load<Number, kCount>(from + column);
    for (int k = 0; k < kCount; ++k) sum += to_float(x.values[k]);
  });
  const float mean = warp_sum(sum) * share;
  float square = 0;
  for_each_pack<kCount>(columns, [&](int column) {
    const auto x = load<Number, kCount>(from + column);
    for (int k = 0; k < kCount; ++k) {
      const float distance = to_float(x.values[k]) - mean;
      square += distance * distance;
    }
  });
  const float inverse = 1 / sqrtf(warp_sum(square) * share + kLeastVariance);
  for_each_pack<kCount>(columns, [&](int column) {
    auto x = load<Number, kCount>(from + column);
    const auto factor = load<Number, kCount>(scale + column);
    const auto addend = load<Number, kCount>(shift + column);
    for (int k = 0; k < kCount; ++k) {
      const float normalised = (to_float(x.values[k]) - mean) * inverse;
      x.values[k] =
          rounded_to<Number>(normalised * to_float(factor.values[k]) + to_float(addend.values[k]));
    }
    store(output + row * columns + column, x);
  });
  if (threadIdx.x % kWarp != 0) return;
  means[row] = mean;
  inverses[row] = inverse;
}

template <class Number>
struct BackwardArrays {
  const Number* input;
  const Number* scale;
  const float* means;
  const float* inverses;
  const Number* output_gradient;
  const Number* addend;
  Number* input_gradient;
};

template <class Number, int kCount>
__global__ void backward_kernel(int columns, std::int64_t rows, BackwardArrays<Number> arrays) {
  const std::int64_t row = row_number();
  if (row >= rows) return;
  const std::int64_t begin = row * columns;
  const auto share = 1 / static_cast<float>(columns);
  const float mean = arrays.means[row];
  const float inverse = arrays.inverses[row];
  float sum = 0;
  float slope = 0;
  for_each_pack<kCount>(columns, [&](int column) {
    const auto x = load<Number, kCount>(arrays.input + begin + column);
    const auto g = load<Number, kCount>(arrays.output_gradient + begin + column);
    const auto factor = load<Number, kCount>(arrays.scale + column);
    for (int k = 0; k < kCount; ++k) {
      const float h = to_float(g.values[k]) * to_float(factor.values[k]);
      sum += h;
      slope += h * (to_float(x.values[k]) - mean) * inverse;
    }
  });
  sum = warp_sum(sum) * share;
  slope = warp_sum(slope) * share;
  for_each_pack<kCount>(columns, [&](int column) {
    const auto x = load<Number, kCount>(arrays.input + begin + column);
    const auto g = load<Number, kCount>(arrays.output_gradient + begin + column);
    const auto factor = load<Number, kCount>(arrays.scale + column);
    Pack<Number, kCount> around{};
    if (arrays.addend != nullptr) around = load<Number, kCount>(arrays.addend + begin + column);
    Pack<Number, kCount> result;
    for (int k = 0; k < kCount; ++k) {
      const float h = to_float(g.values[k]) * to_float(factor.values[k]);
      const float normalised = (to_float(x.values[k]) - mean) * inverse;
      result.values[k] =
          rounded_to<Number>(inverse * (h - sum - normalised * slope) + to_float(around.values[k]));
    }
    store(arrays.input_gradient + begin + column, result);
  });
}

Grid grid_for_rows(std::int64_t rows) {
  return {{blocks_for(rows, kRowsPerBlock), 1, 1}, {kRowsPerBlock * kWarp, 1, 1}};
}

}  // namespace

void normalise(const Stream& stream, const NormForward& arrays) {
  const std::int64_t rows = arrays.input.count / arrays.columns;
  const auto columns = static_cast<int>(arrays.columns);
  with_packs(arrays.input.type, arrays.columns,
             {arrays.input, arrays.scale, arrays.shift, arrays.output}, [&](auto of, auto pack) {
               using Number = typename decltype(of)::Number;
               launch(normalise_kernel<Number, pack.value>, grid_for_rows(rows), stream, columns,
                      rows, numbers_in<Number>(arrays.input), numbers_in<Number>(arrays.scale),
                      numbers_in<Number>(arrays.shift), numbers_in<Number>(arrays.output),
                      numbers_in<float>(arrays.statistics.means),
                      numbers_in<float>(arrays.statistics.inverses));
             });
}

void normalise_backward(const Stream& stream, const NormBackward& arrays) {
  const std::int64_t rows = arrays.input.count / arrays.columns;
  const auto columns = static_cast<int>(arrays.columns);
  with_packs(
      arrays.input.type, arrays.columns,
      {arrays.input, arrays.scale, arrays.output_gradient, arrays.addend, arrays.input_gradient},
      [&](auto of, auto pack) {
        using Number = typename decltype(of)::Number;
        const BackwardArrays<Number> pointers{
            .input = numbers_in<Number>(arrays.input),
            .scale = numbers_in<Number>(arrays.scale),
            .means = numbers_in<float>(arrays.statistics.means),
            .inverses = numbers_in<float>(arrays.statistics.inverses),
            .output_gradient = numbers_in<Number>(arrays.output_gradient),
            .addend = numbers_in<Number>(arrays.addend),
            .input_gradient = numbers_in<Number>(arrays.input_gradient)};
        launch(backward_kernel<Number, pack.value>, grid_for_rows(rows), stream, columns, rows,
               pointers);
      });
}

}  // namespace dapple::cuda
