#include "dapple/exec/message/thread_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "exec/message/announced.h"
#include "exec/message/clock.h"
#include "exec/message/mailbox.h"
#include "exec/message/waiting.h"

namespace dapple::exec {

class ThreadNetwork::State {
 public:
  State(const Topology& topology, std::vector<DeviceIndex> devices, ThreadTransportOptions options);

  std::int64_t send(const MessageKey& key, Payload payload);
  Payload receive(const MessageKey& key);
  void barrier(DeviceIndex device);
  void announce(DeviceIndex device, const Action& action) noexcept {
    current_actions_.at(device).set(action);
  }
  void abort() noexcept;
  Bytes sent() const { return {sent_.load()}; }

 private:
  void stop_if_aborted() const {
    if (aborted_) throw JobAborted("the job was aborted");
  }

  const Topology& topology_;
  const std::vector<DeviceIndex> devices_;
  const ThreadTransportOptions options_;
  std::vector<std::int64_t> port_memory_;
  std::optional<LinkPacer> pacer_;
  // Filled for all devices by the constructor, so that the map never changes later.
  std::map<DeviceIndex, Mailbox> mailboxes_;
  std::map<DeviceIndex, AnnouncedAction> current_actions_;
  std::atomic<std::int64_t> sent_ = 0;
  std::atomic<bool> aborted_ = false;

  // Guards the members below, which implement the barrier.
  std::mutex mutex_;
  std::condition_variable all_here_;
  std::size_t at_barrier_ = 0;
  std::int64_t barriers_ = 0;
};

ThreadNetwork::State::State(const Topology& topology, std::vector<DeviceIndex> devices,
                            ThreadTransportOptions options)
    : topology_(topology),
      devices_(std::move(devices)),
      options_(std::move(options)),
      port_memory_(LinkPacer::words(topology), 0) {
  if (options_.pacing) pacer_.emplace(topology_, *options_.pacing, port_memory_);
  for (std::int32_t i = 0; i < topology.device_count(); ++i) {
    mailboxes_[{i}];
    current_actions_[{i}];
  }
}

std::int64_t ThreadNetwork::State::send(const MessageKey& key, Payload payload) {
  const Bytes size{static_cast<std::int64_t>(payload.size())};
  const bool is_paced = pacer_ && key.from != key.to && size.count > 0;
  // Bytes can pass an emulated link only once they have been computed.
  if (is_paced) payload.await();
  const std::int64_t arrival =
      is_paced ? pacer_->pass(key, size, [this] { stop_if_aborted(); }) : monotonic_now();
  stop_if_aborted();
  sent_ += size.count;
  check(mailboxes_.at(key.to).put(key, {.payload = std::move(payload), .arrival = arrival}),
        "a message was sent twice");
  return arrival;
}

Payload ThreadNetwork::State::receive(const MessageKey& key) {
  std::optional<Mail> mail = mailboxes_.at(key.to).take(key, options_.timeout);
  if (!mail) {
    throw missing_message({.here = topology_.device(key.to).name,
                           .peer = topology_.device(key.from).name,
                           .peer_at = current_actions_.at(key.from).get()},
                          key, options_.timeout);
  }
  sleep_until(mail->arrival);
  return std::move(mail->payload);
}

void ThreadNetwork::State::barrier(DeviceIndex device) {
  std::unique_lock lock(mutex_);
  const std::int64_t before = barriers_;
  if (++at_barrier_ == devices_.size()) {
    at_barrier_ = 0;
    ++barriers_;
    all_here_.notify_all();
    return;
  }
  const std::size_t here = at_barrier_;
  const bool is_released =
      all_here_.wait_for(lock, options_.timeout, [&] { return aborted_ || barriers_ != before; });
  stop_if_aborted();
  if (is_released) return;
  throw Error(
      ErrorKind::Environment, topology_.device(device).name,
      {{"barrier", fmt::format("expected all {} devices within {} s, got {}", devices_.size(),
                               seconds_of(options_.timeout), std::max(here, at_barrier_))}});
}

void ThreadNetwork::State::abort() noexcept {
  {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    all_here_.notify_all();
  }
  for (auto& [device, mailbox] : mailboxes_) mailbox.close();
}

class ThreadNetwork::End : public Transport {
 public:
  End(State& state, DeviceIndex device) : state_(state), device_(device) {}
  std::int64_t send(const MessageKey& key, Payload payload) override {
    check(key.from == device_, "a device sends in another one's name");
    const auto size = static_cast<std::int64_t>(payload.size());
    const std::int64_t arrival = state_.send(key, std::move(payload));
    sent_ += size;
    return arrival;
  }
  Payload receive(const MessageKey& key, const ExpectedMessage& /*expected*/) override {
    check(key.to == device_, "a device takes in what is for another one");
    return state_.receive(key);
  }
  void barrier() override { state_.barrier(device_); }
  void announce(const Action& action) noexcept override { state_.announce(device_, action); }
  Bytes sent() const override { return {sent_.load()}; }
  void abort() noexcept override { state_.abort(); }

 private:
  State& state_;
  DeviceIndex device_;
  std::atomic<std::int64_t> sent_ = 0;
};

ThreadNetwork::ThreadNetwork(const Topology& topology, std::vector<DeviceIndex> devices,
                             ThreadTransportOptions options)
    : state_(std::make_unique<State>(topology, std::move(devices), std::move(options))) {}

ThreadNetwork::~ThreadNetwork() = default;

std::unique_ptr<Transport> ThreadNetwork::end_of(DeviceIndex device) {
  return std::make_unique<End>(*state_, device);
}

Bytes ThreadNetwork::sent() const {
  return state_->sent();
}

}  // namespace dapple::exec
