#include <cmath>
#include <utility>

#include "cuda/memory/status.h"
#include "dapple/cuda/memory/device.h"

namespace dapple::cuda {

Event::Event() {
  require(cudaEventCreate(&handle_), "cudaEventCreate");
}

Event::Event(Event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

Event::~Event() {
  if (handle_ != nullptr) static_cast<void>(cudaEventDestroy(handle_));
}

void Event::record(const Stream& stream) {
  require(cudaEventRecord(handle_, stream.handle()), "cudaEventRecord");
}

bool Event::is_reached() const {
  const cudaError_t status = cudaEventQuery(handle_);
  if (status == cudaErrorNotReady) return false;
  require(status, "cudaEventQuery");
  return true;
}

void Event::wait() const {
  require(cudaEventSynchronize(handle_), "cudaEventSynchronize");
}

Duration Event::since(const Event& earlier) const {
  float milliseconds = 0;
  require(cudaEventElapsedTime(&milliseconds, earlier.handle_, handle_), "cudaEventElapsedTime");
  return {std::llround(static_cast<double>(milliseconds) * 1e6)};
}

Stream::Stream(Priority priority) {
  int least = 0;
  int greatest = 0;
  require(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  require(cudaStreamCreateWithPriority(&handle_, cudaStreamNonBlocking,
                                       priority == Priority::High ? greatest : least),
          "cudaStreamCreateWithPriority");
}

Stream::Stream(Stream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

Stream& Stream::operator=(Stream&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

Stream::~Stream() {
  if (handle_ != nullptr) static_cast<void>(cudaStreamDestroy(handle_));
}

void Stream::wait_for(const Event& event) const {
  require(cudaStreamWaitEvent(handle_, event.handle(), 0), "cudaStreamWaitEvent");
}

void Stream::finish() const {
  require(cudaStreamSynchronize(handle_), "cudaStreamSynchronize");
}

}  // namespace dapple::cuda
