// A device's end over NCCL that owns the one below, between threads.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "dapple/exec/message/message_memory.h"
#include "dapple/exec/nccl/nccl_transport.h"
#include "gpu_ends.h"

namespace dapple::small {

class OverThreads : public exec::Transport {
 public:
  OverThreads(std::unique_ptr<exec::Transport> below, const Topology& topology, DeviceIndex device,
              exec::DeviceConnections connections)
      : below_(std::move(below)),
        end_(exec::make_nccl_transport(
            *below_, topology,
            {.here = device, .connections = std::move(connections), .gpu = gpu_of(device)})) {}

  std::int64_t send(const exec::MessageKey& key, exec::Payload payload) override {
    return end_->send(key, std::move(payload));
  }
  exec::Payload receive(const exec::MessageKey& key,
                        const exec::ExpectedMessage& expected) override {
    return end_->receive(key, expected);
  }
  bool performs(CollectiveKind kind, const exec::ReductionGroup& group, const exec::MessageKey& key,
                exec::ReductionBuffer& buffer) override {
    return end_->performs(kind, group, key, buffer);
  }
  bool exchanges(const std::vector<DeviceIndex>& members, const exec::MessageKey& key,
                 exec::ExchangeBuffer& buffer) override {
    return end_->exchanges(members, key, buffer);
  }
  void barrier() override { end_->barrier(); }
  void announce(const Action& action) noexcept override { end_->announce(action); }
  Bytes sent() const override { return end_->sent(); }
  void abort() noexcept override { end_->abort(); }

 private:
  std::unique_ptr<exec::Transport> below_;
  std::unique_ptr<exec::Transport> end_;
};

}  // namespace dapple::small
