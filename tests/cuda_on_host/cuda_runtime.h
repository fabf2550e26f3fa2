// CUDA's runtime as far as dapple uses it, on the host: its kernels compile as plain C++, and run
// block after block, the threads of a block in turns (block.h). A GPU's memory is the host's;
// streams are threads, which wait for each other's events (streams.h). There are several GPUs;
// which of them is a thread's own matters as it does to CUDA.
//
// What a GPU would not forgive is an error here too: threads that do not meet at a barrier, grids
// out of range, addresses off their alignment, and, under sanitizers, memory out of bounds and
// streams that use it at the same time.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "block.h"
#include "kernels.h"
#include "streams.h"

#define __host__
#define __device__
#define __global__
#define __launch_bounds__(threads, blocks)
#define __shared__ thread_local

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
};
const char* cudaGetErrorString(cudaError_t status);

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;

// --- devices and memory
// ---------------------------------------------------------------------------

struct cudaDeviceProp {
  char name[256];
  int major;
  int minor;
};
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int ordinal);
cudaError_t cudaSetDevice(int ordinal);
cudaError_t cudaMemGetInfo(std::size_t* unused, std::size_t* total);

cudaError_t cudaMalloc(void** address, std::size_t size);
cudaError_t cudaFree(void* address);
enum { cudaHostAllocPortable = 1 };
cudaError_t cudaHostAlloc(void** address, std::size_t size, unsigned flags);
cudaError_t cudaFreeHost(void* address);

enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t size, cudaStream_t stream);

// --- streams and events
// ---------------------------------------------------------------------------

enum { cudaStreamNonBlocking = 1 };
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);

cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);

namespace cuda_on_host {

/// Whether it is of the GPU that is the calling thread's.
bool is_of_this_gpu(cudaStream_t stream);

}  // namespace cuda_on_host

// --- launches
// -------------------------------------------------------------------------------------

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
};

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments... arguments) {
  const dim3 grid = config->gridDim;
  const dim3 block = config->blockDim;
  if (!cuda_on_host::is_launchable(grid, block)) return cudaErrorInvalidConfiguration;
  if (!cuda_on_host::is_of_this_gpu(config->stream)) return cudaErrorInvalidResourceHandle;
  cuda_on_host::note_launch(reinterpret_cast<const void*>(kernel));
  cuda_on_host::enqueue(
      config->stream, [=] { cuda_on_host::run_grid(grid, block, [&] { kernel(arguments...); }); });
  return cudaSuccess;
}

// --- inside kernels
// -------------------------------------------------------------------------------

inline void __syncthreads() {
  cuda_on_host::meet_block();
}

template <class Number>
Number __shfl_xor_sync(unsigned lanes, Number value, int lane_mask) {
  static_assert(sizeof(Number) <= sizeof(cuda_on_host::Word));
  cuda_on_host::Word word = 0;
  __builtin_memcpy(&word, &value, sizeof(Number));
  word = cuda_on_host::exchange(lanes, word, lane_mask);
  __builtin_memcpy(&value, &word, sizeof(Number));
  return value;
}

/// Blocks of a grid run one after another, and threads give way at barriers only.
inline float atomicAdd(float* sum, float addend) {
  const float before = *sum;
  *sum += addend;
  return before;
}
