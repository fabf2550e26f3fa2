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

}  // namespace dapple::cuda
