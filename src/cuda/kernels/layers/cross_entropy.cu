#include "cuda/kernels/layers/cross_entropy.h"

#include "cuda/kernels/launch.h"
#include "cuda/kernels/numbers.h"
#include "cuda/kernels/reductions.h"

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

template <class Number>
__global__ void log_sum_kernel(std::int64_t classes, std::int64_t stride, const Number* scores,
                               const std::int32_t* targets, float* log_sums, float* row_losses) {
  const std::int64_t row = blockIdx.x;
  const Number* from = scores + row * stride;
  RunningSum running;
  for_each_pack(from, classes, [&](std::int64_t i, auto pack) {
    const auto numbers = load<Number, pack.value>(from + i);
    for (const Number& number : numbers.values) running.add(to_float(number));
  });
  const float largest = block_max(running.largest);
  // A thread without scores has a sum of zero; subtracting infinities must be avoided.
  const float own = running.sum == 0 ? 0 : running.sum * expf(running.largest - largest);
  const float log_sum = largest + logf(block_sum(own));
  if (threadIdx.x != 0) return;
  log_sums[row] = log_sum;
  row_losses[row] = log_sum - to_float(from[targets[row]]);
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
__global__ void gradient_kernel(std::int64_t classes, std::int64_t stride,
                                std::int64_t rows_per_sample, Number* scores,
                                const std::int32_t* targets, const float* log_sums,
                                const float* slopes) {
  const std::int64_t row = blockIdx.x;
  Number* numbers = scores + row * stride;
  const float log_sum = log_sums[row];
  const float weight = slopes[row / rows_per_sample] / static_cast<float>(rows_per_sample);
  const std::int64_t target = targets[row];
  for_each_pack(numbers, classes, [&](std::int64_t i, auto pack) {
    auto values = load<Number, pack.value>(numbers + i);
    for (int k = 0; k < pack.value; ++k) {
      const float share = expf(to_float(values.values[k]) - log_sum);
      values.values[k] = rounded_to<Number>(weight * (share - (i + k == target ? 1.0F : 0.0F)));
    }
    store(numbers + i, values);
  });
}

}  // namespace

void cross_entropy(Device& device, const CrossEntropy& arrays, View losses) {
  const std::int64_t rows = arrays.targets.count;
  const Buffer row_losses = device.allocate({rows * size_of(Type::Float32)});
  auto* numbers = reinterpret_cast<float*>(row_losses.address());
  with_floats(arrays.scores.type, [&](auto of) {
    using Number = typename decltype(of)::Number;
    launch(log_sum_kernel<Number>, {{blocks_for(rows, 1), 1, 1}, {kThreads, 1, 1}},
           device.compute(), arrays.classes, arrays.stride, numbers_in<Number>(arrays.scores),
           numbers_in<std::int32_t>(arrays.targets), numbers_in<float>(arrays.log_sums), numbers);
  });
  launch(mean_kernel, {{blocks_for(losses.count, 1), 1, 1}, {kThreads, 1, 1}}, device.compute(),
         rows / losses.count, numbers, numbers_in<float>(losses));
}

void cross_entropy_gradient(const Stream& stream, const CrossEntropy& arrays, View slopes) {
  const std::int64_t rows = arrays.targets.count;
  with_floats(arrays.scores.type, [&](auto of) {
    using Number = typename decltype(of)::Number;
    launch(gradient_kernel<Number>, {{blocks_for(rows, 1), 1, 1}, {kThreads, 1, 1}}, stream,
           arrays.classes, arrays.stride, rows / slopes.count, numbers_in<Number>(arrays.scores),
           numbers_in<std::int32_t>(arrays.targets), numbers_in<float>(arrays.log_sums),
           numbers_in<float>(slopes));
  });
}

}  // namespace dapple::cuda
