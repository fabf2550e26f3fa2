// The position of a thread in a one-dimensional grid.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace dapple::cuda {

__device__ inline std::int64_t thread_number() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t thread_count() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

}  // namespace dapple::cuda
