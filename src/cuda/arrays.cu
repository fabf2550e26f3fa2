#include "dapple/cuda/arrays.h"
#include "launch.h"
#include "numbers.h"
#include "reductions.h"
#include "threads.h"

namespace dapple::cuda {
namespace {

template <class From, class To, int kCount>
__global__ void copy_kernel(const From* from, To* to, std::int64_t packs) {
  for (std::int64_t i = thread_number(); i < packs; i += thread_count()) {
    const auto numbers = load<From, kCount>(from + i * kCount);
    Pack<To, kCount> result;
    for (int k = 0; k < kCount; ++k) {
      if constexpr (std::is_same_v<From, To>) {
        result.values[k] = numbers.values[k];
      } else {
        result.values[k] = rounded_to<To>(to_float(numbers.values[k]));
      }
    }
    store(to + i * kCount, result);
  }
}

template <class Addend, class Sum, int kCount>
__global__ void add_kernel(const Addend* addend, Sum* sum, std::int64_t packs) {
  for (std::int64_t i = thread_number(); i < packs; i += thread_count()) {
    const auto numbers = load<Addend, kCount>(addend + i * kCount);
    auto result = load<Sum, kCount>(sum + i * kCount);
    for (int k = 0; k < kCount; ++k) {
      result.values[k] = rounded_to<Sum>(to_float(result.values[k]) + to_float(numbers.values[k]));
    }
    store(sum + i * kCount, result);
  }
}

template <int kCount>
__global__ void scale_kernel(float factor, float* values, std::int64_t packs) {
  for (std::int64_t i = thread_number(); i < packs; i += thread_count()) {
    auto result = load<float, kCount>(values + i * kCount);
    for (float& value : result.values) value *= factor;
    store(values + i * kCount, result);
  }
}

__global__ void square_kernel(const float* values, std::int64_t count, double* sums) {
  double sum = 0;
  for (std::int64_t i = thread_number(); i < count; i += thread_count()) {
    const auto value = static_cast<double>(values[i]);
    sum += value * value;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void sum_kernel(double* values, int count) {
  const double sum = block_sum(static_cast<int>(threadIdx.x) < count ? values[threadIdx.x] : 0.0);
  if (threadIdx.x == 0) values[0] = sum;
}

/// Calls `visit` with a pack's size for arrays that are one row.
template <class Visit>
void with_row_packs(const View& first, const View& second, const Visit& visit) {
  constexpr int kCount = 4;
  if (is_packable(first, first.count, kCount) && is_packable(second, second.count, kCount)) {
    return visit(PackOf<kCount>{});
  }
  visit(PackOf<1>{});
}

}  // namespace

void fill_with_zeros(const Stream& stream, View values) {
  if (values.count == 0) return;
  require(cudaMemsetAsync(values.address, 0, static_cast<std::size_t>(values.size().count),
                          stream.handle()),
          "cudaMemsetAsync");
}

void copy(const Stream& stream, std::span<const std::byte> from, std::span<std::byte> to) {
  check(from.size() == to.size(), "arrays of different lengths are copied");
  if (from.empty()) return;
  require(cudaMemcpyAsync(to.data(), from.data(), from.size(), cudaMemcpyDeviceToDevice,
                          stream.handle()),
          "cudaMemcpyAsync");
}

void copy(const Stream& stream, View from, View to) {
  check(from.count == to.count, "arrays of different lengths are copied");
  if (from.count == 0) return;
  if (from.type == to.type) return copy(stream, from.bytes(), to.bytes());
  with_numbers(from.type, [&](auto source) {
    with_numbers(to.type, [&](auto target) {
      with_row_packs(from, to, [&](auto pack) {
        using From = typename decltype(source)::Number;
        using To = typename decltype(target)::Number;
        const std::int64_t packs = from.count / pack.value;
        launch(copy_kernel<From, To, pack.value>, grid_for(packs), stream, numbers_in<From>(from),
               numbers_in<To>(to), packs);
      });
    });
  });
}

void add(const Stream& stream, View addend, View sum) {
  check(addend.count == sum.count, "arrays of different lengths are added");
  if (addend.count == 0) return;
  with_floats(addend.type, [&](auto source) {
    with_floats(sum.type, [&](auto target) {
      with_row_packs(addend, sum, [&](auto pack) {
        using Addend = typename decltype(source)::Number;
        using Sum = typename decltype(target)::Number;
        const std::int64_t packs = sum.count / pack.value;
        launch(add_kernel<Addend, Sum, pack.value>, grid_for(packs), stream,
               numbers_in<Addend>(addend), numbers_in<Sum>(sum), packs);
      });
    });
  });
}

void scale(const Stream& stream, float factor, View values) {
  check(values.type == Type::Float32, "what is scaled is in single precision");
  if (values.count == 0) return;
  with_row_packs(values, values, [&](auto pack) {
    const std::int64_t packs = values.count / pack.value;
    launch(scale_kernel<pack.value>, grid_for(packs), stream, factor, numbers_in<float>(values),
           packs);
  });
}

void squared_norm(const Stream& stream, View values, std::byte* partials) {
  check(values.type == Type::Float32, "a norm is of numbers in single precision");
  constexpr unsigned kThreads = 256;
  static_assert(kNormPartials == kThreads);
  const auto blocks = std::min(blocks_for(std::max<std::int64_t>(values.count, 1), kThreads),
                               static_cast<unsigned>(kNormPartials));
  auto* sums = reinterpret_cast<double*>(partials);
  launch(square_kernel, {{blocks, 1, 1}, {kThreads, 1, 1}}, stream, numbers_in<float>(values),
         values.count, sums);
  launch(sum_kernel, {{1, 1, 1}, {kThreads, 1, 1}}, stream, sums, static_cast<int>(blocks));
}

}  // namespace dapple::cuda
