// Messages in a GPU's memory.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>

#include "dapple/cuda/memory/device.h"
#include "dapple/exec/message/payload.h"

namespace dapple::exec {

/// The way from a device's memory to the host for whatever leaves the process, for any thread.
/// Every message has it, and so keeps that memory until the last one is gone.
class CudaDownloads {
 public:
  explicit CudaDownloads(cuda::Device& device)
      : ordinal_(device.ordinal()), kept_(device.allocate({1})) {}

  int ordinal() const { return ordinal_; }
  /// Once the event is reached; waits for it.
  HostBytes bytes_at(const std::byte* address, std::size_t size, const cuda::Event& ready);

 private:
  const int ordinal_;
  const cuda::Buffer kept_;  // a piece of memory keeps all of it
  std::mutex mutex_;
  cuda::Stream stream_;
  cuda::Staging staging_;
};

class CudaBytes : public DeviceBytes {
 public:
  /// Bytes that are there after `ready`, in memory of their own, or of someone who keeps it until
  /// the iteration is over.
  CudaBytes(std::shared_ptr<CudaDownloads> downloads, cuda::Buffer memory, cuda::Event ready);
  CudaBytes(std::shared_ptr<CudaDownloads> downloads, std::span<std::byte> bytes,
            cuda::Event ready);

  std::size_t size() const override { return size_; }
  void await() const override { ready_.wait(); }
  HostBytes on_host() const override { return downloads_->bytes_at(address_, size_, ready_); }

  int gpu() const { return downloads_->ordinal(); }
  std::byte* address() const { return address_; }
  const cuda::Event& ready() const { return ready_; }

  /// Gives memory of its own back once the stream has done what it has been given so far. Requires:
  /// the stream is on the GPU that is the calling thread's.
  void release_after(const cuda::Stream& stream);

 private:
  std::shared_ptr<CudaDownloads> downloads_;
  cuda::Buffer memory_;
  std::byte* address_ = nullptr;
  std::size_t size_ = 0;
  cuda::Event ready_;
};

/// A moment of the stream, on the calling thread's GPU.
cuda::Event recorded_on(const cuda::Stream& stream);

/// The message as one in GPU memory; null where it lies on the host.
CudaBytes* cuda_bytes_of(const Payload& payload);

}  // namespace dapple::exec
