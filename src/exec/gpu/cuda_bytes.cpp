#include "dapple/exec/gpu/cuda_bytes.h"

#include <utility>

#include "dapple/core/error.h"

namespace dapple::exec {

HostBytes CudaDownloads::bytes_at(const std::byte* address, std::size_t size,
                                  const cuda::Event& ready) {
  HostBytes bytes(size);
  const std::lock_guard lock(mutex_);
  cuda::make_current(ordinal_);
  stream_.wait_for(ready);
  staging_.download(address, bytes, stream_);
  return bytes;
}

CudaBytes::CudaBytes(std::shared_ptr<CudaDownloads> downloads, cuda::Buffer memory,
                     cuda::Event ready)
    : downloads_(std::move(downloads)),
      memory_(std::move(memory)),
      address_(memory_.address()),
      size_(static_cast<std::size_t>(memory_.size().count)),
      ready_(std::move(ready)) {}

CudaBytes::CudaBytes(std::shared_ptr<CudaDownloads> downloads, std::span<std::byte> bytes,
                     cuda::Event ready)
    : downloads_(std::move(downloads)),
      address_(bytes.data()),
      size_(bytes.size()),
      ready_(std::move(ready)) {}

void CudaBytes::release_after(const cuda::Stream& stream) {
  if (memory_) memory_.release_after(recorded_on(stream));
}

cuda::Event recorded_on(const cuda::Stream& stream) {
  cuda::Event event;
  event.record(stream);
  return event;
}

CudaBytes* cuda_bytes_of(const Payload& payload) {
  if (payload.device() == nullptr) return nullptr;
  auto* bytes = dynamic_cast<CudaBytes*>(payload.device());
  check(bytes != nullptr, "a message lies on a device of another kind");
  return bytes;
}

}  // namespace dapple::exec
