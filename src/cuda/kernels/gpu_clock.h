// The clock of a GPU, for kernels.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#ifndef __CUDACC__  // tests run kernels on the host
#include <chrono>
#include <thread>
#endif

namespace dapple::cuda {

/// Returns the nanoseconds since some fixed time, the same for all multiprocessors (PTX ISA,
/// %globaltimer).
__device__ inline std::uint64_t gpu_nanoseconds() {
#ifdef __CUDACC__
  std::uint64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#else
  std::this_thread::yield();
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
#endif
}

}  // namespace dapple::cuda
