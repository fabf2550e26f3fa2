// Devices in threads, each on a GPU, that talk over NCCL and, below, through mailboxes.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "dapple/cuda/memory/device.h"
#include "dapple/exec/gpu/cuda_bytes.h"
#include "dapple/exec/message/transport.h"
#include "dapple/exec/nccl/nccl_transport.h"

namespace dapple::small {

/// The GPU of a device: one of its own, as NCCL asks for; on the host all share the one that there
/// is.
inline int gpu_of(DeviceIndex device) {
  return device.value % cuda::gpu_count();
}

/// Whether there are GPUs for so many devices; says so where there are not.
inline bool has_gpus_for(std::size_t devices) {
#ifndef DAPPLE_NCCL_ON_HOST
  if (static_cast<std::size_t>(cuda::gpu_count()) < devices) {
    WARN("skipped: no " << devices << " GPUs here");
    return false;
  }
#endif
  return devices > 0;
}

/// Among devices that all send to each other.
inline std::unique_ptr<exec::Transport> nccl_end(
    exec::Transport& below, const Topology& topology, DeviceIndex here,
    std::vector<DeviceIndex> devices, exec::ReductionSizes reductions = {},
    std::chrono::nanoseconds timeout = std::chrono::seconds(30)) {
  std::erase(devices, here);
  return exec::make_nccl_transport(below, topology,
                                   {.here = here,
                                    .connections = {.peers = std::move(devices),
                                                    .reductions = std::move(reductions),
                                                    .inbox = {200 << 20}},
                                    .gpu = gpu_of(here),
                                    .timeout = timeout});
}

/// Sends what lies on the host from a GPU's memory, and hands out on the host what has come there.
class ByWayOfGpu : public exec::Transport {
 public:
  ByWayOfGpu(exec::Transport& under, int gpu)
      : under_(under),
        device_(gpu, {200 << 20}),
        downloads_(std::make_shared<exec::CudaDownloads>(device_)) {}

  std::int64_t send(const exec::MessageKey& key, exec::Payload payload) override {
    return under_.send(key, on_gpu(payload));
  }
  exec::Payload receive(const exec::MessageKey& key,
                        const exec::ExpectedMessage& expected) override {
    exec::Payload payload =
        under_.receive(key, {.size = expected.size, .memory = exec::Memory::Device});
    payload.bring_to_host();
    return payload;
  }
  bool performs(CollectiveKind kind, const exec::ReductionGroup& group, const exec::MessageKey& key,
                exec::ReductionBuffer& buffer) override {
    return under_.performs(kind, group, key, buffer);
  }
  bool exchanges(const std::vector<DeviceIndex>& members, const exec::MessageKey& key,
                 exec::ExchangeBuffer& buffer) override {
    return under_.exchanges(members, key, buffer);
  }
  void barrier() override { under_.barrier(); }
  void announce(const Action& action) noexcept override { under_.announce(action); }
  Bytes sent() const override { return under_.sent(); }
  void abort() noexcept override { under_.abort(); }

 private:
  exec::Payload on_gpu(const exec::Payload& payload) {
    const std::lock_guard lock(mutex_);
    device_.make_current();
    cuda::Buffer memory;
    if (payload.size() > 0) {
      memory = device_.allocate({static_cast<std::int64_t>(payload.size())});
      device_.upload(payload.host(), memory.address(), device_.compute());
    }
    return exec::Payload(std::make_unique<exec::CudaBytes>(downloads_, std::move(memory),
                                                           exec::recorded_on(device_.compute())));
  }

  exec::Transport& under_;
  std::mutex mutex_;
  cuda::Device device_;
  std::shared_ptr<exec::CudaDownloads> downloads_;
};

}  // namespace dapple::small
