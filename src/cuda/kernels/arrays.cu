#include <algorithm>

#include "cuda/kernels/launch.h"
#include "cuda/kernels/numbers.h"
#include "cuda/kernels/reductions.h"
#include "cuda/kernels/threads.h"
#include "dapple/cuda/kernels/arrays.h"

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

struct Pieces {
  float* sums[kMostPieces];
};

/// Adds one piece for each block along y. Indexing the array of pieces with blockIdx.y directly
/// would copy it to each thread's local memory.
__global__ void add_pieces_kernel(const float* addend, std::int64_t count, Pieces pieces) {
  float* sum = nullptr;
  for (unsigned piece = 0; piece < kMostPieces; ++piece) {
    if (blockIdx.y == piece) sum = pieces.sums[piece];
  }
  const float* from = addend + std::int64_t{blockIdx.y} * count;
  for (std::int64_t i = thread_number(); i < count; i += thread_count()) sum[i] += from[i];
}

template <int kCount>
__global__ void scale_kernel(float factor, float* values, std::int64_t packs) {
  for (std::int64_t i = thread_number(); i < packs; i += thread_count()) {
    auto result = load<float, kCount>(values + i * kCount);
    for (float& value : result.values) value *= factor;
    store(values + i * kCount, result);
  }
}

/// The grid: as many blocks as a large GPU runs at a time, with enough loads in progress to use its
/// memory bandwidth.
constexpr std::int64_t kSquareBlocks = 512;
constexpr unsigned kSquareThreads = 256;

template <int kCount>
__global__ void square_kernel(const float* values, std::int64_t packs, double* sums) {
  double sum = 0;
  for (std::int64_t i = thread_number(); i < packs; i += thread_count()) {
    const auto pack = load<float, kCount>(values + i * kCount);
    for (const float value : pack.values) {
      sum += static_cast<double>(value) * static_cast<double>(value);
    }
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void sum_kernel(const double* values, unsigned count, double* result) {
  double sum = 0;
  for (unsigned i = threadIdx.x; i < count; i += blockDim.x) sum += values[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *result = sum;
}

/// Calls `visit` with a pack size for arrays that are treated as one row.
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

void repeat(const Stream& stream, View from, View to) {
  check(from.count > 0, "an empty array is repeated");
  for (std::int64_t begin = 0; begin < to.count; begin += from.count) {
    const std::int64_t end = std::min(to.count, begin + from.count);
    copy(stream, from.part(0, end - begin), to.part(begin, end));
  }
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

void add_pieces(const Stream& stream, View addend, std::span<const View> sums) {
  check(!sums.empty() && sums.size() <= kMostPieces, "too many pieces are added, or none");
  Pieces pieces{};
  for (std::size_t i = 0; i < sums.size(); ++i) {
    check(sums[i].count * static_cast<std::int64_t>(sums.size()) == addend.count,
          "arrays of different lengths are added");
    pieces.sums[i] = numbers_in<float>(sums[i]);
  }
  Grid grid = grid_for(sums[0].count);
  grid.blocks.y = static_cast<unsigned>(sums.size());
  launch(add_pieces_kernel, grid, stream, numbers_in<float>(addend), sums[0].count, pieces);
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

void squared_norm(Device& device, View values, std::byte* result) {
  check(values.type == Type::Float32, "a norm is of numbers in single precision");
  const Buffer sums = device.allocate({kSquareBlocks * std::int64_t{sizeof(double)}});
  auto* of_blocks = reinterpret_cast<double*>(sums.address());
  with_row_packs(values, values, [&](auto pack) {
    const std::int64_t packs = values.count / pack.value;
    const unsigned blocks = blocks_for(
        std::clamp<std::int64_t>(packs, 1, kSquareBlocks * kSquareThreads), kSquareThreads);
    launch(square_kernel<pack.value>, {{blocks, 1, 1}, {kSquareThreads, 1, 1}}, device.compute(),
           numbers_in<float>(values), packs, of_blocks);
    launch(sum_kernel, {{1, 1, 1}, {kSquareThreads, 1, 1}}, device.compute(), of_blocks, blocks,
           reinterpret_cast<double*>(result));
  });
}

}  // namespace dapple::cuda
