// Messages in GPU memory.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>

#include "dapple/cuda/memory/device.h"
#include "dapple/exec/message/payload.h"

namespace dapple::exec {

/// Copies data from a device's memory to the host for everything that leaves the process; may be
/// used by any thread. Every message holds a reference to it, which keeps that device memory alive
/// until the last message is gone.
class CudaDownloads {
 public:
  explicit CudaDownloads(cuda::Device& device)
      : ordinal_(device.ordinal()), kept_(device.allocate({1})) {}

  int ordinal() const { return ordinal_; }

  /// Waits for the event, then returns a copy of the bytes.
  HostBytes bytes_at(const std::byte* address, std::size_t size, const cuda::Event& ready);

 private:
  const int ordinal_;
  /// A small allocation that keeps the whole device memory alive.
  const cuda::Buffer kept_;
  std::mutex mutex_;
  cuda::Stream stream_;
  cuda::Staging staging_;
};

/// Bytes in GPU memory that are valid once an event has been reached.
class CudaBytes : public DeviceBytes {
 public:
  /// Constructs a message whose bytes are valid after `ready`. They lie in a buffer that the
  /// message owns, or in memory that its owner keeps valid until the iteration is over.
  CudaBytes(std::shared_ptr<CudaDownloads> downloads, cuda::Buffer memory, cuda::Event ready);
  CudaBytes(std::shared_ptr<CudaDownloads> downloads, std::span<std::byte> bytes,
            cuda::Event ready);

  std::size_t size() const override { return size_; }
  void await() const override { ready_.wait(); }
  HostBytes on_host() const override { return downloads_->bytes_at(address_, size_, ready_); }

  int gpu() const { return downloads_->ordinal(); }
  std::byte* address() const { return address_; }
  const cuda::Event& ready() const { return ready_; }

  /// Frees the message's own buffer, if it has one, once the stream has completed all work enqueued
  /// so far. Requires: the stream is on the calling thread's current GPU.
  void release_after(const cuda::Stream& stream);

 private:
  std::shared_ptr<CudaDownloads> downloads_;
  cuda::Buffer memory_;
  std::byte* address_ = nullptr;
  std::size_t size_ = 0;
  cuda::Event ready_;
};

/// Records an event on the stream, which is on the calling thread's current GPU.
cuda::Event recorded_on(const cuda::Stream& stream);

/// Returns the payload's GPU bytes; null if it lies on the host. Throws Bug if it lies on a device
/// of another kind.
CudaBytes* cuda_bytes_of(const Payload& payload);

}  // namespace dapple::exec
