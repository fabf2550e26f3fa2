#include "dapple/exec/thread_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "clock.h"
#include "dapple/core/error.h"
#include "dapple/schedule/schedule.h"

namespace dapple {
namespace {

/// At most so long a piece keeps the slowest port of its route busy: what senders take turns by.
constexpr Duration kPiece{500'000};

struct Earlier {
  bool operator()(const MessageKey& a, const MessageKey& b) const {
    const auto order = [](const MessageKey& key) {
      return std::tuple(key.iteration, key.from, key.to, key.action.stage, key.action.kind,
                        key.action.index, key.step);
    };
    return order(a) < order(b);
  }
};

struct Mail {
  Payload payload;
  std::int64_t arrival = 0;
};

}  // namespace

class ThreadNetwork::State {
 public:
  State(const Topology& topology, std::vector<DeviceIndex> devices,
        const ThreadTransportOptions& options)
      : topology_(topology),
        devices_(std::move(devices)),
        options_(options),
        port_free_from_(topology.ports().size(), 0) {}

  std::int64_t send(const MessageKey& key, Payload payload);
  Payload receive(const MessageKey& key);
  void barrier(DeviceIndex device);
  void abort() noexcept;
  Bytes sent() const {
    const std::lock_guard lock(mutex_);
    return sent_;
  }

 private:
  std::int64_t pass(const MessageKey& key, Bytes size);
  std::int64_t pass_piece(const Route& route, Bytes size, std::int64_t ready);
  /// Waits for the condition, as long as one may. False if it does not come true.
  template <class Condition>
  bool wait(std::unique_lock<std::mutex>& lock, Condition condition);

  const Topology& topology_;
  const std::vector<DeviceIndex> devices_;
  const ThreadTransportOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<MessageKey, Mail, Earlier> mail_;
  std::vector<std::int64_t> port_free_from_;
  Bytes sent_;
  std::size_t at_barrier_ = 0;
  std::int64_t barriers_ = 0;
  bool aborted_ = false;
};

template <class Condition>
bool ThreadNetwork::State::wait(std::unique_lock<std::mutex>& lock, Condition condition) {
  const bool came =
      changed_.wait_for(lock, options_.timeout, [&] { return aborted_ || condition(); });
  if (aborted_) throw JobAborted("the job was aborted");
  return came;
}

/// Moment at which a piece that is ready then has passed all ports.
std::int64_t ThreadNetwork::State::pass_piece(const Route& route, Bytes size, std::int64_t ready) {
  const std::lock_guard lock(mutex_);
  if (aborted_) throw JobAborted("the job was aborted");
  std::int64_t start = ready;
  for (const PortIndex port : route.ports) {
    start = std::max(start, port_free_from_[port.position()]);
  }
  std::int64_t end = start;
  for (const PortIndex port : route.ports) {
    const Bandwidth bandwidth = topology_.ports()[port.position()].bandwidth;
    const Wide busy = Wide{size.count} * options_.pace->billionths;
    const std::int64_t free = start + divide_up(busy, bandwidth.bytes_per_second);
    port_free_from_[port.position()] = free;
    end = std::max(end, free);
  }
  return end;
}

std::int64_t ThreadNetwork::State::pass(const MessageKey& key, Bytes size) {
  const Route route = topology_.route(key.from, key.to);
  const Wide at_once =
      Wide{route.bandwidth.bytes_per_second} * kPiece.ns / options_.pace->billionths;
  const std::int64_t piece = std::max<std::int64_t>(1, static_cast<std::int64_t>(at_once));
  std::int64_t moment = monotonic_now();
  for (std::int64_t begin = 0; begin < size.count; begin += piece) {
    moment = pass_piece(route, Bytes{std::min(piece, size.count - begin)}, moment);
    sleep_until(moment);
  }
  return moment + divide_up(Wide{route.latency.ns} * options_.pace->billionths, kOne.billionths);
}

std::int64_t ThreadNetwork::State::send(const MessageKey& key, Payload payload) {
  const Bytes size{static_cast<std::int64_t>(payload.size())};
  const bool is_paced = options_.pace.has_value() && key.from != key.to && size.count > 0;
  const std::int64_t arrival = is_paced ? pass(key, size) : monotonic_now();
  const std::lock_guard lock(mutex_);
  if (aborted_) throw JobAborted("the job was aborted");
  sent_ += size;
  const bool is_new =
      mail_.emplace(key, Mail{.payload = std::move(payload), .arrival = arrival}).second;
  check(is_new, "a message was sent twice");
  changed_.notify_all();
  return arrival;
}

Payload ThreadNetwork::State::receive(const MessageKey& key) {
  Mail mail;
  {
    std::unique_lock lock(mutex_);
    auto found = mail_.end();
    const bool came = wait(lock, [&] { return (found = mail_.find(key)) != mail_.end(); });
    if (!came) {
      throw Error(ErrorKind::Environment, topology_.device(key.to).name,
                  {{to_text(key.action),
                    fmt::format("expected a message from {} within {} s, got "
                                "none",
                                topology_.device(key.from).name,
                                std::chrono::duration<double>(options_.timeout).count())}});
    }
    mail = std::move(found->second);
    mail_.erase(found);
  }
  sleep_until(mail.arrival);
  return std::move(mail.payload);
}

void ThreadNetwork::State::barrier(DeviceIndex device) {
  std::unique_lock lock(mutex_);
  const std::int64_t before = barriers_;
  if (++at_barrier_ == devices_.size()) {
    at_barrier_ = 0;
    ++barriers_;
    changed_.notify_all();
    return;
  }
  const std::size_t here = at_barrier_;
  if (wait(lock, [&] { return barriers_ != before; })) return;
  throw Error(ErrorKind::Environment, topology_.device(device).name,
              {{"barrier", fmt::format("expected all {} devices, got {}", devices_.size(),
                                       std::max(here, at_barrier_))}});
}

void ThreadNetwork::State::abort() noexcept {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  changed_.notify_all();
}

class ThreadNetwork::End : public Transport {
 public:
  End(State& state, DeviceIndex device) : state_(state), device_(device) {}
  std::int64_t send(const MessageKey& key, Payload payload) override {
    check(key.from == device_, "a device sends in another one's name");
    return state_.send(key, std::move(payload));
  }
  Payload receive(const MessageKey& key) override {
    check(key.to == device_, "a device takes in what is for another one");
    return state_.receive(key);
  }
  void barrier() override { state_.barrier(device_); }
  void abort() noexcept override { state_.abort(); }

 private:
  State& state_;
  DeviceIndex device_;
};

ThreadNetwork::ThreadNetwork(const Topology& topology, std::vector<DeviceIndex> devices,
                             const ThreadTransportOptions& options)
    : state_(std::make_unique<State>(topology, std::move(devices), options)) {}

ThreadNetwork::~ThreadNetwork() = default;

std::unique_ptr<Transport> ThreadNetwork::end_of(DeviceIndex device) {
  return std::make_unique<End>(*state_, device);
}

Bytes ThreadNetwork::sent() const {
  return state_->sent();
}

}  // namespace dapple
