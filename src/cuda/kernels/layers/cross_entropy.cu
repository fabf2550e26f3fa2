#include "cuda/kernels/layers/cross_entropy.h"

#include "cuda/kernels/launch.h"
#include "cuda/kernels/numbers.h"
#include "cuda/kernels/reductions.h"
#include "cuda/kernels/threads.h"

namespace dapple::cuda {
namespace {

constexpr unsigned kThreads = 256;

/// The largest score so far and the sum of the exponentials of the differences to it.
/// Source: Milakov and Gimelshein 2018, algorithm 3.
struct RunningSum {
  float largest = -INFINITY;
  float sum = 0;

  __device__ void add(float score) {
    if (score > largest) {
      sum = sum * expf(largest - score) + 1;
      largest = score;
    } else {
      sum += expf(score - largest);
    }
  }
};

__device__ float block_max(float value) {
  __shared__ float of_warps[kWarp];
  const unsigned lane = threadIdx.x % kWarp;
  value = warp_max(value);
  if (lane == 0) of_warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  return warp_max(lane < blockDim.x / kWarp ? of_warps[lane] : -INFINITY);
}

/// Calls `visit(first, PackOf<kCount>{})` for packs that cover a row, `first` being the first
/// number of the pack, distributed over the block's threads: full packs at multiples of 16 bytes,
/// and packs of one before and after these.
template <class Number, class Visit>
__device__ void for_each_pack(const Number* row, std::int64_t count, const Visit& visit) {
  constexpr int kCount = kPackOf<Number>;
  const auto address = reinterpret_cast<std::uintptr_t>(row);
  const auto gap = static_cast<std::int64_t>((kWidestAccess - address % kWidestAccess) %
                                             kWidestAccess / sizeof(Number));
  const std::int64_t begin = gap < count ? gap : count;
  const std::int64_t end = begin + (count - begin) / kCount * kCount;
  const auto thread = static_cast<std::int64_t>(threadIdx.x);
  const auto threads = static_cast<std::int64_t>(blockDim.x);
  if (thread < begin) visit(thread, PackOf<1>{});
  for (std::int64_t i = begin + thread * kCount; i < end; i += threads * kCount) {
    visit(i, PackOf<kCount>{});
  }
  if (thread < count - end) visit(end + thread, PackOf<1>{});
}

/// Returns the sum over the block's row, to all of its threads; one without scores has a sum of
/// zero.
template <class Number>
__device__ RunningSum sum_of_row(const Number* row, std::int64_t classes) {
  RunningSum running;
  for_each_pack(row, classes, [&](std::int64_t i, auto pack) {
    const auto numbers = load<Number, pack.value>(row + i);
    for (const Number& number : numbers.values) running.add(to_float(number));
  });
  RunningSum all;
  all.largest = block_max(running.largest);
  // A thread without scores has a sum of zero; subtracting infinities must be avoided.
  const float own = running.sum == 0 ? 0 : running.sum * expf(running.largest - all.largest);
  all.sum = block_sum(own);
  return all;
}

template <class Number>
__global__ void log_sum_kernel(std::int64_t classes, std::int64_t stride, const Number* scores,
                               const std::int32_t* targets, float* log_sums, float* row_losses) {
  const std::int64_t row = blockIdx.x;
  const Number* from = scores + row * stride;
  const RunningSum sum = sum_of_row(from, classes);
  const float log_sum = sum.largest + logf(sum.sum);
  if (threadIdx.x != 0) return;
  log_sums[row] = log_sum;
  row_losses[row] = log_sum - to_float(from[targets[row]]);
}

/// What a rank says of a row of which it has some scores.
struct RowPart {
  float largest;
  float sum;
  // Zero if another rank has it.
  float target_score;
};

template <class Number>
__global__ void row_part_kernel(std::int64_t first, std::int64_t classes, std::int64_t stride,
                                const Number* scores, const std::int32_t* targets, RowPart* parts) {
  const std::int64_t row = blockIdx.x;
  const Number* from = scores + row * stride;
  const RunningSum sum = sum_of_row(from, classes);
  if (threadIdx.x != 0) return;
  const std::int64_t target = targets[row] - first;
  const bool is_own = target >= 0 && target < classes;
  parts[row] = {sum.largest, sum.sum, is_own ? to_float(from[target]) : 0};
}

/// Adds up the parts of all ranks, which follow one another, in their order.
__global__ void join_kernel(std::int64_t ranks, std::int64_t rows, const RowPart* parts,
                            float* log_sums, float* row_losses) {
  for (std::int64_t row = thread_number(); row < rows; row += thread_count()) {
    float largest = -INFINITY;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      largest = fmaxf(largest, parts[rank * rows + row].largest);
    }
    float sum = 0;
    float target_score = 0;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const RowPart part = parts[rank * rows + row];
      sum += part.sum == 0 ? 0 : part.sum * expf(part.largest - largest);
      target_score += part.target_score;
    }
    log_sums[row] = largest + logf(sum);
    row_losses[row] = log_sums[row] - target_score;
  }
}

__global__ void mean_kernel(std::int64_t rows_per_sample, const float* row_losses, float* losses) {
  const float* from = row_losses + blockIdx.x * rows_per_sample;
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < rows_per_sample; i += blockDim.x) {
    sum += static_cast<double>(from[i]);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0)
    losses[blockIdx.x] = static_cast<float>(sum / static_cast<double>(rows_per_sample));
}

template <class Number>
__global__ void gradient_kernel(std::int64_t first, std::int64_t classes, std::int64_t stride,
                                std::int64_t rows_per_sample, Number* scores,
                                const std::int32_t* targets, const float* log_sums,
                                const float* slopes) {
  const std::int64_t row = blockIdx.x;
  Number* numbers = scores + row * stride;
  const float log_sum = log_sums[row];
  const float weight = slopes[row / rows_per_sample] / static_cast<float>(rows_per_sample);
  const std::int64_t target = targets[row] - first;
  for_each_pack(numbers, classes, [&](std::int64_t i, auto pack) {
    auto values = load<Number, pack.value>(numbers + i);
    for (int k = 0; k < pack.value; ++k) {
      const float share = expf(to_float(values.values[k]) - log_sum);
      values.values[k] = rounded_to<Number>(weight * (share - (i + k == target ? 1.0F : 0.0F)));
    }
    store(numbers + i, values);
  });
}

void write_means(Device& device, const CrossEntropy& arrays, const Buffer& row_losses,
                 View losses) {
  launch(mean_kernel, {{blocks_for(losses.count, 1), 1, 1}, {kThreads, 1, 1}}, device.compute(),
         arrays.targets.count / losses.count, reinterpret_cast<float*>(row_losses.address()),
         numbers_in<float>(losses));
}

/// Returns memory for a number of each row.
Buffer of_rows(Device& device, const CrossEntropy& arrays) {
  return device.allocate({arrays.targets.count * size_of(Type::Float32)});
}

}  // namespace

void cross_entropy(Device& device, const CrossEntropy& arrays, View losses) {
  const Buffer row_losses = of_rows(device, arrays);
  with_floats(arrays.scores.type, [&](auto of) {
    using Number = typename decltype(of)::Number;
    launch(log_sum_kernel<Number>, {{blocks_for(arrays.targets.count, 1), 1, 1}, {kThreads, 1, 1}},
           device.compute(), arrays.classes, arrays.stride, numbers_in<Number>(arrays.scores),
           numbers_in<std::int32_t>(arrays.targets), numbers_in<float>(arrays.log_sums),
           reinterpret_cast<float*>(row_losses.address()));
  });
  write_means(device, arrays, row_losses, losses);
}

void cross_entropy_part(const Stream& stream, const CrossEntropy& arrays, View parts) {
  static_assert(sizeof(RowPart) == kNumbersOfRowPart * sizeof(float));
  with_floats(arrays.scores.type, [&](auto of) {
    using Number = typename decltype(of)::Number;
    launch(row_part_kernel<Number>, {{blocks_for(arrays.targets.count, 1), 1, 1}, {kThreads, 1, 1}},
           stream, arrays.first_class, arrays.classes, arrays.stride,
           numbers_in<Number>(arrays.scores), numbers_in<std::int32_t>(arrays.targets),
           numbers_in<RowPart>(parts));
  });
}

void join_cross_entropy(Device& device, const CrossEntropy& arrays, View parts, View losses) {
  const std::int64_t rows = arrays.targets.count;
  const Buffer row_losses = of_rows(device, arrays);
  launch(join_kernel, grid_for(rows), device.compute(), parts.count / (kNumbersOfRowPart * rows),
         rows, numbers_in<RowPart>(parts), numbers_in<float>(arrays.log_sums),
         reinterpret_cast<float*>(row_losses.address()));
  write_means(device, arrays, row_losses, losses);
}

void cross_entropy_gradient(const Stream& stream, const CrossEntropy& arrays, View slopes) {
  const std::int64_t rows = arrays.targets.count;
  with_floats(arrays.scores.type, [&](auto of) {
    using Number = typename decltype(of)::Number;
    launch(gradient_kernel<Number>, {{blocks_for(rows, 1), 1, 1}, {kThreads, 1, 1}}, stream,
           arrays.first_class, arrays.classes, arrays.stride, rows / slopes.count,
           numbers_in<Number>(arrays.scores), numbers_in<std::int32_t>(arrays.targets),
           numbers_in<float>(arrays.log_sums), numbers_in<float>(slopes));
  });
}

}  // namespace dapple::cuda
