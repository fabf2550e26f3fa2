#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "cuda_runtime.h"
#include "streams.h"

using cuda_on_host::Moment;

namespace {

constexpr int kGpus = 4;
thread_local int current_gpu = 0;

/// Of memory on GPUs, to which of them it belongs.
std::mutex memory_mutex;
std::map<const void*, int> gpu_of_memory;

}  // namespace

namespace cuda_on_host {

bool is_of_this_gpu(cudaStream_t stream) {
  return gpu_of(stream) == current_gpu;
}

}  // namespace cuda_on_host

/// May be recorded and asked for by several threads, as CUDA's.
struct CUevent_st {
 public:
  int gpu() const { return gpu_; }

  void record(cudaStream_t stream) {
    auto moment = std::make_shared<Moment>();
    {
      const std::lock_guard lock(mutex_);
      last_ = moment;
    }
    cuda_on_host::enqueue(stream, [moment] { moment->reach(); });
  }
  /// Null if it was never recorded.
  std::shared_ptr<Moment> last() {
    const std::lock_guard lock(mutex_);
    return last_;
  }

 private:
  const int gpu_ = current_gpu;
  std::mutex mutex_;
  std::shared_ptr<Moment> last_;
};

const char* cudaGetErrorString(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    default:
      return status == cudaSuccess ? "no error" : "invalid argument";
  }
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = kGpus;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int ordinal) {
  if (ordinal < 0 || ordinal >= kGpus) return cudaErrorInvalidValue;
  *properties = {"the host", 9, 0};
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int ordinal) {
  if (ordinal < 0 || ordinal >= kGpus) return cudaErrorInvalidValue;
  current_gpu = ordinal;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* unused, std::size_t* total) {
  constexpr std::size_t kMemory = std::size_t{1} << 30;
  *unused = kMemory;
  *total = kMemory;
  return cudaSuccess;
}

namespace {

void* aligned_memory(std::size_t size) {
  constexpr std::size_t kAlignment = 512;
  return std::aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment);
}

}  // namespace

cudaError_t cudaMalloc(void** address, std::size_t size) {
  *address = aligned_memory(size);
  if (*address == nullptr) return cudaErrorMemoryAllocation;
  const std::lock_guard lock(memory_mutex);
  gpu_of_memory[*address] = current_gpu;
  return cudaSuccess;
}

/// Waits for its GPU, as CUDA does.
cudaError_t cudaFree(void* address) {
  if (address == nullptr) return cudaSuccess;
  int gpu = 0;
  {
    const std::lock_guard lock(memory_mutex);
    const auto found = gpu_of_memory.find(address);
    if (found == gpu_of_memory.end()) return cudaErrorInvalidValue;
    gpu = found->second;
    gpu_of_memory.erase(found);
  }
  cuda_on_host::finish_all_streams(gpu);
  std::free(address);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** address, std::size_t size, unsigned) {
  *address = aligned_memory(size);
  return *address == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

/// Nothing says that CUDA waits here.
cudaError_t cudaFreeHost(void* address) {
  std::free(address);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind,
                            cudaStream_t stream) {
  cuda_on_host::enqueue(stream, [=] {
    if (size > 0) std::memcpy(to, from, size);
  });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t size, cudaStream_t stream) {
  if (!cuda_on_host::is_of_this_gpu(stream)) return cudaErrorInvalidResourceHandle;
  cuda_on_host::enqueue(stream, [=] { std::memset(to, value, size); });
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = 0;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = cuda_on_host::make_stream(current_gpu);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  cuda_on_host::end_stream(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (const auto moment = event->last()) {
    cuda_on_host::enqueue(stream, [moment] { moment->wait(); });
  }
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const auto end = std::make_shared<Moment>();
  cuda_on_host::enqueue(stream, [end] { end->reach(); });
  end->wait();
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

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (event->gpu() != cuda_on_host::gpu_of(stream)) return cudaErrorInvalidResourceHandle;
  event->record(stream);
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const auto moment = event->last();
  return moment && !moment->is_reached() ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const auto moment = event->last()) moment->wait();
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (begin->gpu() != end->gpu()) return cudaErrorInvalidResourceHandle;
  const auto first = begin->last();
  const auto last = end->last();
  if (!first || !last) return cudaErrorInvalidValue;
  if (!first->is_reached() || !last->is_reached()) return cudaErrorNotReady;
  const std::chrono::duration<float, std::milli> passed = last->time() - first->time();
  *milliseconds = passed.count();
  return cudaSuccess;
}
