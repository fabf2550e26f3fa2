#include <chrono>
#include <cstdlib>
#include <cstring>

#include "cuda_runtime.h"

// Streams are told apart by nothing: what is enqueued has been done.
struct CUstream_st {};
struct CUevent_st {
  std::chrono::steady_clock::time_point recorded{};
};

const char* cudaGetErrorString(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    default:
      return status == cudaSuccess ? "no error" : "invalid argument";
  }
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int ordinal) {
  if (ordinal != 0) return cudaErrorInvalidValue;
  *properties = {"the host", 0, 0};
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int ordinal) {
  return ordinal == 0 ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaMemGetInfo(std::size_t* unused, std::size_t* total) {
  constexpr std::size_t kMemory = std::size_t{1} << 30;
  *unused = kMemory;
  *total = kMemory;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** address, std::size_t size) {
  constexpr std::size_t kAlignment = 512;
  *address = std::aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment);
  return *address == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t cudaFree(void* address) {
  std::free(address);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** address, std::size_t size, unsigned) {
  return cudaMalloc(address, size);
}

cudaError_t cudaFreeHost(void* address) {
  return cudaFree(address);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind,
                            cudaStream_t) {
  std::memcpy(to, from, size);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t size, cudaStream_t) {
  std::memset(to, value, size);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = 0;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = new CUstream_st;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->recorded = std::chrono::steady_clock::now();
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t) {
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const std::chrono::duration<float, std::milli> passed = end->recorded - begin->recorded;
  *milliseconds = passed.count();
  return cudaSuccess;
}
