// Sums and maxima over the threads of a warp and of a block, in a fixed order.
#pragma once

#include <cuda_runtime.h>

namespace dapple::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kWholeWarp = 0xffffffffU;

/// Returns the sum to all threads of the warp, all of which must take part.
template <class Number>
__device__ Number warp_sum(Number value) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kWholeWarp, value, distance);
  }
  return value;
}

__device__ inline float warp_max(float value) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kWholeWarp, value, distance));
  }
  return value;
}

/// Returns the sum to all threads of the block, which consists of whole warps along x; all threads
/// must take part.
template <class Number>
__device__ Number block_sum(Number value) {
  __shared__ Number of_warps[kWarp];
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  value = warp_sum(value);
  __syncthreads();  // values of a previous sum may still be read
  if (lane == 0) of_warps[warp] = value;
  __syncthreads();
  return warp_sum(lane < blockDim.x / kWarp ? of_warps[lane] : Number{});
}

/// Calls `visit(value, sum)` once for each column of threads and each of their values, in one of
/// the threads, with the sum over the column. The block is kWarp threads wide and `kThreads` high,
/// and all of its threads must take part.
template <int kThreads, int kValues, class Visit>
__device__ void for_each_column_sum(const float (&values)[kValues], const Visit& visit) {
  __shared__ float of_threads[kThreads][kValues][kWarp];
  const unsigned lane = threadIdx.x;
  __syncthreads();  // values of previous sums may still be read
  for (int value = 0; value < kValues; ++value) {
    of_threads[threadIdx.y][value][lane] = values[value];
  }
  __syncthreads();
  for (int value = static_cast<int>(threadIdx.y); value < kValues; value += kThreads) {
    float sum = 0;
    for (int thread = 0; thread < kThreads; ++thread) sum += of_threads[thread][value][lane];
    visit(value, sum);
  }
}

}  // namespace dapple::cuda
