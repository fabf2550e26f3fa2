// Carries frames and notices between the ranks of a job. This layer knows ranks and bytes, but no
// plans.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <span>

#include "dapple/exec/message/transport.h"

namespace dapple::exec {

/// Describes a message; precedes its bytes.
struct Frame {
  MessageKey key;
  std::uint64_t size = 0;
  std::uint64_t fingerprint = 0;
  // The number of the message among those from this rank.
  std::uint64_t number = 0;
  // The sending rank, filled in by the wire.
  std::int32_t from = 0;
  // Whether a notice of the same number tells the arrival time, for which the receiver must wait.
  bool awaits_arrival_time = false;
};

enum class NoticeKind : std::int32_t {
  ArrivalTime,
  Join,
  BarrierArrival,
  BarrierRelease,
  Heartbeat,
  Failure
};

/// A short message without separate bytes.
struct Notice {
  NoticeKind kind = NoticeKind::Heartbeat;
  // The sending rank, filled in by the wire.
  std::int32_t from = 0;
  // A time of rank 0's clock.
  std::int64_t moment = 0;
  // The number of the message or barrier, or the fingerprint of the agreement.
  std::uint64_t number = 0;
  // The current action, packed.
  std::uint64_t action = 0;
};

/// Callbacks, called in the wire's thread, possibly before the wire's constructor has returned.
struct WireHandler {
  std::function<void(const Frame& frame, HostBytes bytes)> message;
  std::function<void(const Notice& notice)> notice;
  // Called at short intervals.
  std::function<void()> turn;
  // The connection to the rank has ended without an announcement.
  std::function<void(int rank)> lost;
  // The wire itself has failed.
  std::function<void(std::exception_ptr fault)> fault;
};

/// The connections of one rank with all others.
class RankWire {
 public:
  /// Ends the job on all ranks if leave() has not been called.
  virtual ~RankWire() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual bool is_on_one_host() const = 0;
  /// The offset from this host's clock to that of rank 0's host.
  virtual std::int64_t clock_offset() const = 0;
  /// The time for which a rank that was not the first to fail waits to be ended by the launcher.
  virtual std::chrono::milliseconds launcher_grace_period() const = 0;

  /// Returns zero-initialized memory that the ranks of one host share, valid as long as the wire
  /// exists. All ranks call it once. Throws Error(Environment).
  virtual std::span<std::int64_t> shared_words(std::size_t count) = 0;

  /// Sends a message without waiting. `bytes` must stay valid until `sent` is called in the wire's
  /// thread; the closure may own them.
  virtual void send(int to, const Frame& frame, std::span<const std::byte> bytes,
                    std::function<void()> sent) = 0;
  virtual void send(int to, const Notice& notice) = 0;

  /// Returns a future that becomes ready once all ranks have called this function; the ranks may
  /// then leave.
  virtual std::future<void> leave() = 0;
};

}  // namespace dapple::exec
