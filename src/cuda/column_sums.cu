#include "column_sums.h"

#include "launch.h"
#include "numbers.h"
#include "reductions.h"
#include "threads.h"

namespace dapple::cuda {
namespace {

constexpr int kLanes = 32;      // threads along a row
constexpr int kRowThreads = 8;  // threads along a column
constexpr int kMostParts = 64;  // of the rows, each for a block

/// What is summed up of a pack of a row: `kSums` numbers for each column.
template <class Kind, int kCount>
struct GradientTerms {
  using Number = Kind;
  static constexpr int kSums = 1;
  const Number* gradient;

  __device__ void add(std::int64_t, std::int64_t at, float (&sums)[kSums][kCount]) const {
    const auto g = load<Number, kCount>(gradient + at);
    for (int k = 0; k < kCount; ++k) sums[0][k] += to_float(g.values[k]);
  }
};

template <class Kind, int kCount>
struct NormTerms {
  using Number = Kind;
  static constexpr int kSums = 2;
  const Number* input;
  const float* means;
  const float* inverses;
  const Number* gradient;

  __device__ void add(std::int64_t row, std::int64_t at, float (&sums)[kSums][kCount]) const {
    const auto x = load<Number, kCount>(input + at);
    const auto g = load<Number, kCount>(gradient + at);
    const float mean = means[row];
    const float inverse = inverses[row];
    for (int k = 0; k < kCount; ++k) {
      const float slope = to_float(g.values[k]);
      sums[0][k] += slope * (to_float(x.values[k]) - mean) * inverse;
      sums[1][k] += slope;
    }
  }
};

/// A block sums up a part of the rows for some columns: partials[part][sum][column].
template <template <class, int> class Terms, class Number, int kCount>
__global__ void partial_kernel(Terms<Number, kCount> terms, std::int64_t rows, int columns,
                               float* partials) {
  constexpr int kSums = Terms<Number, kCount>::kSums;
  __shared__ float of_threads[kRowThreads][kSums * kCount][kLanes];
  const auto lane = static_cast<int>(threadIdx.x);
  const auto row_thread = static_cast<int>(threadIdx.y);
  const int column = (static_cast<int>(blockIdx.x) * kLanes + lane) * kCount;
  float sums[kSums][kCount] = {};
  if (column < columns) {
    const std::int64_t first_row = std::int64_t{blockIdx.y} * kRowThreads + row_thread;
    const std::int64_t stride = std::int64_t{gridDim.y} * kRowThreads;
    for (std::int64_t row = first_row; row < rows; row += stride) {
      terms.add(row, row * columns + column, sums);
    }
  }
  for (int s = 0; s < kSums; ++s) {
    for (int k = 0; k < kCount; ++k) of_threads[row_thread][s * kCount + k][lane] = sums[s][k];
  }
  __syncthreads();
  if (column >= columns) return;
  for (int value = row_thread; value < kSums * kCount; value += kRowThreads) {
    float sum = 0;
    for (int thread = 0; thread < kRowThreads; ++thread) sum += of_threads[thread][value][lane];
    const std::int64_t array = static_cast<std::int64_t>(blockIdx.y) * kSums + value / kCount;
    partials[array * columns + column + value % kCount] = sum;
  }
}

enum class Target { Added, Overwritten };

template <Target kTarget>
__global__ void total_kernel(const float* partials, int parts, std::int64_t count, float* sums) {
  const std::int64_t i = thread_number();
  if (i >= count) return;
  float sum = kTarget == Target::Added ? sums[i] : 0;
  for (int part = 0; part < parts; ++part) sum += partials[part * count + i];
  sums[i] = sum;
}

template <Target kTarget, template <class, int> class Terms, class Number, int kCount>
void enqueue(Device& device, const Terms<Number, kCount>& terms, std::int64_t rows,
             std::int64_t columns, const View& sums) {
  constexpr std::int64_t kRowsPerThread = 8;
  const unsigned parts =
      std::min<unsigned>(kMostParts, blocks_for(rows, kRowThreads * kRowsPerThread));
  const std::int64_t count = Terms<Number, kCount>::kSums * columns;
  const Buffer partials = device.allocate({parts * count * size_of(Type::Float32)});
  auto* numbers = reinterpret_cast<float*>(partials.address());
  const Grid grid{{blocks_for(columns, kLanes * kCount), parts, 1}, {kLanes, kRowThreads, 1}};
  launch(partial_kernel<Terms, Number, kCount>, grid, device.compute(), terms, rows,
         static_cast<int>(columns), numbers);
  constexpr unsigned kThreads = 128;
  launch(total_kernel<kTarget>, {{blocks_for(count, kThreads), 1, 1}, {kThreads, 1, 1}},
         device.compute(), numbers, static_cast<int>(parts), count, numbers_in<float>(sums));
}

}  // namespace

void add_column_sums(Device& device, View gradient, View sums) {
  const std::int64_t columns = sums.count;
  with_packs(gradient.type, columns, {gradient}, [&](auto of, auto pack) {
    using Number = typename decltype(of)::Number;
    const GradientTerms<Number, pack.value> terms{numbers_in<Number>(gradient)};
    enqueue<Target::Added>(device, terms, gradient.count / columns, columns, sums);
  });
}

void sum_norm_gradients(Device& device, const NormParameterGradients& arrays) {
  const std::int64_t columns = arrays.sums.count / 2;
  with_packs(
      arrays.input.type, columns, {arrays.input, arrays.output_gradient}, [&](auto of, auto pack) {
        using Number = typename decltype(of)::Number;
        const NormTerms<Number, pack.value> terms{numbers_in<Number>(arrays.input),
                                                  numbers_in<float>(arrays.statistics.means),
                                                  numbers_in<float>(arrays.statistics.inverses),
                                                  numbers_in<Number>(arrays.output_gradient)};
        enqueue<Target::Overwritten>(device, terms, arrays.input.count / columns, columns,
                                     arrays.sums);
      });
}

}  // namespace dapple::cuda
