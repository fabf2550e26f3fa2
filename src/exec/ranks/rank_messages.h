// The messages of one rank: sends them over a wire, and keeps those that have arrived until they
// are received.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/exec/message/pacing.h"
#include "dapple/exec/message/transport.h"
#include "dapple/exec/ranks/rank_job.h"
#include "dapple/exec/ranks/rank_wire.h"
#include "exec/message/mailbox.h"
#include "exec/ranks/rank_names.h"

namespace dapple::exec {

/// Thread-safe. Messages may arrive before join(). Its lock is held neither while the wire is
/// called nor while bytes are copied or verified.
class RankMessages {
 public:
  /// The names must outlive this object.
  RankMessages(const RankNames& names, RankClock clock) : names_(names), clock_(std::move(clock)) {}

  /// Begins to send and to receive; the device of rank r is `devices[r]`. The topology and the wire
  /// must outlive this object. Throws Error(Usage) if links are to be paced on several hosts.
  void join(RankWire& wire, const Topology& topology, const std::vector<DeviceIndex>& devices,
            const RankTransportOptions& options);

  /// These do what the functions of Transport do; they throw JobAborted once close() has been
  /// called. Requires: join() has been called.
  std::int64_t send(const MessageKey& key, Payload payload);
  Payload receive(const MessageKey& key, const ExpectedMessage& expected);

  /// Takes in a message from the wire. Returns false if its sender has sent it before.
  [[nodiscard]] bool take_in(const Frame& frame, HostBytes bytes);
  /// Takes in the arrival time of a message on a paced link. Returns false if its sender has sent
  /// the message before.
  [[nodiscard]] bool take_in_arrival_time(const Notice& notice);

  /// Ends all waits.
  void close() noexcept;

  Bytes sent() const { return {sent_.load()}; }

 private:
  /// A message on a paced link that has not been delivered yet, or the notice of its arrival time
  /// if that has come first.
  struct Held {
    std::optional<std::pair<MessageKey, Mail>> mail;
    std::optional<std::int64_t> arrival;
  };
  // Indexed by rank and message number.
  using HeldMessages = std::map<std::pair<int, std::uint64_t>, Held>;

  bool deliver(HeldMessages::iterator held);
  void verify(const MessageKey& key, const ExpectedMessage& expected, const Mail& mail) const;
  void throw_if_closed();
  int rank_of(DeviceIndex device) const;
  Error error(const MessageKey& key, const std::string& message) const;

  const RankNames& names_;
  const RankClock clock_;
  // These are set by join().
  RankWire* wire_ = nullptr;
  std::vector<DeviceIndex> devices_;
  std::chrono::nanoseconds timeout_{0};
  std::function<void(const MessageKey& key, std::span<std::byte> bytes)> on_arrival_;
  std::optional<LinkPacer> pacer_;

  Mailbox mailbox_;
  std::atomic<std::int64_t> sent_ = 0;
  std::atomic<std::uint64_t> messages_ = 0;

  // Guards `held_`, `is_closed_` and the flags of pending messages.
  std::mutex mutex_;
  std::condition_variable changed_;
  HeldMessages held_;
  bool is_closed_ = false;
};

}  // namespace dapple::exec
