#include "cuda/kernels/layers/layer_norm.h"

#include <type_traits>

#include "cuda/kernels/column_sums.h"
#include "cuda/kernels/launch.h"
#include "cuda/kernels/numbers.h"
#include "cuda/kernels/reductions.h"

namespace dapple::cuda {
namespace {

constexpr int kRowsPerBlock = 4;  // one warp per row
constexpr float kLeastVariance = 1e-5F;

/// Calls `visit` with whether a norm of that kind subtracts the mean, as a constant.
template <class Visit>
void with_centring(NormKind kind, const Visit& visit) {
  if (kind == NormKind::LayerNorm) return visit(std::true_type{});
  visit(std::false_type{});
}

/// Returns the row of this thread's warp.
__device__ std::int64_t row_number() {
  return static_cast<std::int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / kWarp;
}

/// Calls `visit(first)` with the first column of each pack of this thread.
template <int kCount, class Visit>
__device__ void for_each_pack(int columns, const Visit& visit) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int column = lane * kCount; column < columns; column += kWarp * kCount) visit(column);
}

/// Reads each row three times, the second and third time from the nearest cache.
template <class Number, int kCount, bool kIsCentred>
__global__ void normalise_kernel(int columns, std::int64_t rows, const Number* input,
                                 const Number* scale, const Number* shift, Number* output,
                                 float* means, float* inverses) {
  const std::int64_t row = row_number();
  if (row >= rows) return;
  const Number* from = input + row * columns;
  const auto share = 1 / static_cast<float>(columns);
  float mean = 0;
  if constexpr (kIsCentred) {
    float sum = 0;
    for_each_pack<kCount>(columns, [&](int column) {
      const auto x = load<Number, kCount>(from + column);
      for (int k = 0; k < kCount; ++k) sum += to_float(x.values[k]);
    });
    mean = warp_sum(sum) * share;
  }
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
    Pack<Number, kCount> addend{};
    if constexpr (kIsCentred) addend = load<Number, kCount>(shift + column);
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

/// The values that all elements of a row's gradient share.
struct RowGradient {
  float mean = 0;
  float inverse = 0;
  float mean_h = 0;
  float mean_hn = 0;
};

template <class Number, int kCount, bool kIsCentred>
__device__ RowGradient row_gradient(const BackwardArrays<Number>& arrays, int columns,
                                    std::int64_t row) {
  const float mean = arrays.means[row];
  const float inverse = arrays.inverses[row];
  float sum_h = 0;
  float sum_hn = 0;
  for_each_pack<kCount>(columns, [&](int column) {
    const auto x = load<Number, kCount>(arrays.input + row * columns + column);
    const auto g = load<Number, kCount>(arrays.output_gradient + row * columns + column);
    const auto factor = load<Number, kCount>(arrays.scale + column);
    for (int k = 0; k < kCount; ++k) {
      const float h = to_float(g.values[k]) * to_float(factor.values[k]);
      sum_h += h;
      sum_hn += h * (to_float(x.values[k]) - mean) * inverse;
    }
  });
  const auto share = 1 / static_cast<float>(columns);
  const float mean_h = kIsCentred ? warp_sum(sum_h) * share : 0;
  return {mean, inverse, mean_h, warp_sum(sum_hn) * share};
}

/// Writes the gradients of the numbers at `at`, which begin at `column`, and adds their
/// contributions to the gradients of scale and shift.
template <class Number, int kCount>
__device__ void write_gradient(const BackwardArrays<Number>& arrays, const RowGradient& row,
                               std::int64_t at, int column, float (&sums)[2 * kCount]) {
  const auto x = load<Number, kCount>(arrays.input + at);
  const auto g = load<Number, kCount>(arrays.output_gradient + at);
  const auto factor = load<Number, kCount>(arrays.scale + column);
  Pack<Number, kCount> result{};
  if (arrays.addend != nullptr) result = load<Number, kCount>(arrays.addend + at);
  for (int k = 0; k < kCount; ++k) {
    const float slope = to_float(g.values[k]);
    const float n = (to_float(x.values[k]) - row.mean) * row.inverse;
    sums[k] += slope * n;
    sums[kCount + k] += slope;
    const float h = slope * to_float(factor.values[k]);
    result.values[k] = rounded_to<Number>(row.inverse * (h - row.mean_h - n * row.mean_hn) +
                                          to_float(result.values[k]));
  }
  store(arrays.input_gradient + at, result);
}

constexpr int kBackwardWarps = 8;  // of a block
constexpr int kRowsOfWarp = kRowsOfPart / kBackwardWarps;

/// Each block writes the gradients of a part of the rows and its contribution to those of scale and
/// shift: partials[block][scale, shift][column]. Rows are read twice, the second time from caches.
template <class Number, int kCount, bool kIsCentred>
__global__ void backward_kernel(int columns, std::int64_t rows, BackwardArrays<Number> arrays,
                                float* partials) {
  const std::int64_t first = std::int64_t{blockIdx.x} * kRowsOfPart + threadIdx.y * kRowsOfWarp;
  RowGradient of_rows[kRowsOfWarp];
  for (int r = 0; r < kRowsOfWarp; ++r) {
    if (first + r >= rows) continue;
    of_rows[r] = row_gradient<Number, kCount, kIsCentred>(arrays, columns, first + r);
  }
  float* own_partials = partials + std::int64_t{blockIdx.x} * 2 * columns;
  for (int strip = 0; strip < columns; strip += kWarp * kCount) {
    const int column = strip + static_cast<int>(threadIdx.x) * kCount;
    float sums[2 * kCount] = {};
    for (int r = 0; r < kRowsOfWarp; ++r) {
      if (first + r >= rows || column >= columns) continue;
      write_gradient<Number, kCount>(arrays, of_rows[r], (first + r) * columns + column, column,
                                     sums);
    }
    for_each_column_sum<kBackwardWarps>(sums, [&](int value, float sum) {
      if (column < columns) own_partials[value / kCount * columns + column + value % kCount] = sum;
    });
  }
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
               with_centring(arrays.kind, [&](auto is_centred) {
                 launch(normalise_kernel<Number, pack.value, is_centred.value>, grid_for_rows(rows),
                        stream, columns, rows, numbers_in<Number>(arrays.input),
                        numbers_in<Number>(arrays.scale), numbers_in<Number>(arrays.shift),
                        numbers_in<Number>(arrays.output),
                        numbers_in<float>(arrays.statistics.means),
                        numbers_in<float>(arrays.statistics.inverses));
               });
             });
}

void normalise_backward(Device& device, const NormBackward& arrays) {
  const std::int64_t rows = arrays.input.count / arrays.columns;
  const unsigned parts = blocks_for(rows, kRowsOfPart);
  const DeviceTensor partials = make_tensor(device, {parts, arrays.sums.count}, Type::Float32);
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
        with_centring(arrays.kind, [&](auto is_centred) {
          launch(backward_kernel<Number, pack.value, is_centred.value>,
                 {{parts, 1, 1}, {kWarp, kBackwardWarps, 1}}, device.compute(),
                 static_cast<int>(arrays.columns), rows, pointers,
                 numbers_in<float>(partials.view()));
        });
      });
  sum_parts(device.compute(), partials.view(), Target::Overwritten, arrays.sums);
}

}  // namespace dapple::cuda
