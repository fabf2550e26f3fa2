// A job's ranks within one process: their wires lie in memory, and their clock is a number. Nothing
// is delivered, no turn is taken and no time passes but when a test says so. The thread that calls
// deliver() is the wire's thread of all ranks.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "dapple/exec/ranks/rank_job.h"
#include "dapple/exec/ranks/rank_wire.h"

namespace dapple::small {

/// A message or a notice on its way.
struct InFlight {
  int from = 0;
  int to = 0;
  // Empty if this is a message.
  std::optional<exec::Notice> notice = {};
  exec::Frame frame = {};
  std::span<const std::byte> bytes = {};
  std::function<void()> sent = {};
};

class MemoryNetwork {
 public:
  static constexpr std::chrono::milliseconds kLauncherGrace{1'000};
  static constexpr std::int64_t kStart = 1'000'000'000'000;

  explicit MemoryNetwork(int size, bool is_on_one_host = true)
      : size_(size),
        is_on_one_host_(is_on_one_host),
        offsets_(static_cast<std::size_t>(size)),
        handlers_(static_cast<std::size_t>(size)),
        left_(static_cast<std::size_t>(size)),
        words_(1'000) {}

  /// The offset from a rank's clock to that of rank 0.
  void set_clock_offset(int rank, std::int64_t offset) {
    offsets_[static_cast<std::size_t>(rank)] = offset;
  }

  /// `while_made` is called before there is a wire.
  exec::RankJob::MakeWire wire_of(
      int rank, std::function<void(exec::WireHandler&)> while_made = [](exec::WireHandler&) {}) {
    return [this, rank, while_made = std::move(while_made)](exec::WireHandler handler) {
      while_made(handler);
      handlers_[static_cast<std::size_t>(rank)] = std::move(handler);
      return std::make_unique<Wire>(*this, rank);
    };
  }
  exec::RankClock clock() {
    return {.now = [this] { return now(); },
            .sleep_until =
                [this](std::int64_t moment) {
                  std::int64_t seen = now();
                  while (seen < moment && !now_.compare_exchange_weak(seen, moment)) continue;
                }};
  }

  std::int64_t now() const { return now_; }
  std::chrono::nanoseconds elapsed() const { return std::chrono::nanoseconds(now() - kStart); }

  /// The rank takes nothing in and no turns until it goes on; what is sent to it waits.
  void stop(int rank) { stopped_.insert(rank); }
  void go_on(int rank) { stopped_.erase(rank); }
  /// What the rank has sent or is sent from now on is lost; it takes no turns.
  void drop(int rank) { dropped_.insert(rank); }
  /// Drops the rank, and the others see its connections end.
  void cut(int rank) {
    drop(rank);
    for (int other = 0; other < size_; ++other) {
      if (dropped_.count(other) == 0) handler(other).lost(rank);
    }
  }
  exec::WireHandler& handler(int rank) { return handlers_[static_cast<std::size_t>(rank)]; }

  void post(InFlight one) {
    const std::lock_guard lock(mutex_);
    in_flight_.push_back(std::move(one));
    changed_.notify_all();
  }
  /// Reverses the order in which the messages now in flight arrive.
  void reverse() {
    const std::lock_guard lock(mutex_);
    std::reverse(in_flight_.begin(), in_flight_.end());
  }
  std::size_t in_flight() {
    const std::lock_guard lock(mutex_);
    return in_flight_.size();
  }
  void await_in_flight(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return in_flight_.size() >= count; });
  }
  /// Delivers what is in flight, in the order in which it was sent, and what that causes.
  void deliver() {
    while (std::optional<InFlight> one = next()) {
      if (one->notice) {
        one->notice->from = one->from;
        handler(one->to).notice(*one->notice);
      } else {
        one->frame.from = one->from;
        handler(one->to).message(one->frame, exec::HostBytes(one->bytes.begin(), one->bytes.end()));
        if (one->sent) one->sent();
      }
    }
  }
  /// Every rank takes a turn, and what it sends is delivered.
  void take_turns() {
    for (int rank = 0; rank < size_; ++rank) {
      if (stopped_.count(rank) + dropped_.count(rank) == 0) handler(rank).turn();
    }
    deliver();
  }
  /// Lets time pass, with turns every 10 ms.
  void pass(std::chrono::nanoseconds time) {
    constexpr std::chrono::nanoseconds kTurn = std::chrono::milliseconds(10);
    for (; time.count() > 0; time -= kTurn) {
      now_ += std::min(time, kTurn).count();
      take_turns();
    }
  }
  void pass_without_turns(std::chrono::nanoseconds time) { now_ += time.count(); }

  /// Makes calls that wait for each other, each in a thread, and delivers until all have returned.
  /// The first exception by number is thrown.
  void run(const std::vector<std::function<void()>>& calls) {
    std::atomic<std::size_t> returned = 0;
    std::vector<std::future<void>> results;
    for (const std::function<void()>& call : calls) {
      results.push_back(std::async(std::launch::async, [&, call] {
        const Returning returning{*this, returned};
        call();
      }));
    }
    while (returned < calls.size()) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return !in_flight_.empty() || returned == calls.size(); });
      }
      deliver();
    }
    for (std::future<void>& result : results) result.get();
  }

 private:
  /// Counts a call that returns or throws.
  struct Returning {
    MemoryNetwork& network;
    std::atomic<std::size_t>& returned;
    ~Returning() {
      const std::lock_guard lock(network.mutex_);
      ++returned;
      network.changed_.notify_all();
    }
  };

  class Wire : public exec::RankWire {
   public:
    Wire(MemoryNetwork& network, int rank) : network_(network), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return network_.size_; }
    bool is_on_one_host() const override { return network_.is_on_one_host_; }
    std::int64_t clock_offset() const override {
      return network_.offsets_[static_cast<std::size_t>(rank_)];
    }
    std::chrono::milliseconds launcher_grace_period() const override { return kLauncherGrace; }
    std::span<std::int64_t> shared_words(std::size_t count) override {
      return std::span(network_.words_).first(count);
    }
    void send(int to, const exec::Frame& frame, std::span<const std::byte> bytes,
              std::function<void()> sent) override {
      network_.post(
          {.from = rank_, .to = to, .frame = frame, .bytes = bytes, .sent = std::move(sent)});
    }
    void send(int to, const exec::Notice& notice) override {
      network_.post({.from = rank_, .to = to, .notice = notice});
    }
    std::future<void> leave() override {
      const std::lock_guard lock(network_.mutex_);
      std::vector<std::promise<void>>& left = network_.left_;
      std::future<void> result = left[static_cast<std::size_t>(rank_)].get_future();
      if (++network_.leaving_ == network_.size_) {
        for (std::promise<void>& one : left) one.set_value();
      }
      return result;
    }

   private:
    MemoryNetwork& network_;
    const int rank_;
  };

  /// Takes what arrives next; what waits for a stopped rank stays.
  std::optional<InFlight> next() {
    const std::lock_guard lock(mutex_);
    std::erase_if(in_flight_, [&](const InFlight& one) {
      return dropped_.count(one.from) + dropped_.count(one.to) > 0;
    });
    const auto found = std::find_if(in_flight_.begin(), in_flight_.end(), [&](const InFlight& one) {
      return stopped_.count(one.to) == 0;
    });
    if (found == in_flight_.end()) return std::nullopt;
    InFlight one = std::move(*found);
    in_flight_.erase(found);
    return one;
  }

  const int size_;
  const bool is_on_one_host_;
  std::vector<std::int64_t> offsets_;
  std::atomic<std::int64_t> now_ = kStart;
  // These are used by the thread that delivers only.
  std::vector<exec::WireHandler> handlers_;
  std::set<int> stopped_;
  std::set<int> dropped_;

  // Guards all members below.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<InFlight> in_flight_;
  std::vector<std::promise<void>> left_;
  int leaving_ = 0;
  std::vector<std::int64_t> words_;
};

}  // namespace dapple::small
