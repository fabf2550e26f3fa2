// Sums and maxima over the threads of a warp and of a block, in an order that does not change.
#pragma once

#include <cuda_runtime.h>

namespace dapple::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kWholeWarp = 0xffffffffU;

/// The same in all threads of the warp, which must all be there.
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

/// The same in all threads of the block: whole warps along x, which must all be there.
template <class Number>
__device__ Number block_sum(Number value) {
  __shared__ Number of_warps[kWarp];
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  value = warp_sum(value);
  __syncthreads();  // those of a sum before this one may still be read
  if (lane == 0) of_warps[warp] = value;
  __syncthreads();
  return warp_sum(lane < blockDim.x / kWarp ? of_warps[lane] : Number{});
}

/// Calls `visit(value, sum)` once for each column of threads and each of their values, in one of
/// the threads: the sum over the column. The block is kWarp threads wide and `kThreads` high, and
/// all of it must be there.
template <int kThreads, int kValues, class Visit>
__device__ void for_each_column_sum(const float (&values)[kValues], const Visit& visit) {
  __shared__ float of_threads[kThreads][kValues][kWarp];
  const unsigned lane = threadIdx.x;
  __syncthreads();  // those of sums before these may still be read
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
