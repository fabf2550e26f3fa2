// A transport on which nothing happens at once: every call waits a random time first, and most of
// them a random time afterwards.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>

#include "dapple/exec/message/transport.h"
#include "dice.h"

namespace dapple::small {

class DelayingTransport : public exec::Transport {
 public:
  /// `most`: the longest wait, in microseconds; half of the waits are none.
  DelayingTransport(exec::Transport& under, std::uint64_t seed, std::int64_t most)
      : under_(under), dice_(seed), most_(most) {}

  std::int64_t send(const exec::MessageKey& key, exec::Payload payload) override {
    delay();
    const std::int64_t arrival = under_.send(key, std::move(payload));
    delay();
    return arrival;
  }
  exec::Payload receive(const exec::MessageKey& key,
                        const exec::ExpectedMessage& expected) override {
    delay();
    exec::Payload payload = under_.receive(key, expected);
    delay();
    return payload;
  }
  bool performs(CollectiveKind kind, const exec::ReductionGroup& group, const exec::MessageKey& key,
                exec::ReductionBuffer& buffer) override {
    delay();
    return under_.performs(kind, group, key, buffer);
  }
  bool exchanges(const std::vector<DeviceIndex>& members, const exec::MessageKey& key,
                 exec::ExchangeBuffer& buffer) override {
    delay();
    return under_.exchanges(members, key, buffer);
  }
  void barrier() override {
    delay();
    under_.barrier();
  }
  void announce(const Action& action) noexcept override {
    delay();
    under_.announce(action);
  }
  Bytes sent() const override { return under_.sent(); }
  std::int64_t clock_offset() const override { return under_.clock_offset(); }
  void abort() noexcept override {
    delay();
    under_.abort();
  }

 private:
  void delay() {
    std::int64_t microseconds = 0;
    {
      const std::lock_guard lock(mutex_);
      if (dice_.chance(50)) microseconds = dice_.roll(0, most_);
    }
    if (microseconds > 0) std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
  }

  exec::Transport& under_;
  std::mutex mutex_;
  Dice dice_;
  const std::int64_t most_;
};

}  // namespace dapple::small
