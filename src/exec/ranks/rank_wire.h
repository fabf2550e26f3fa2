// What carries frames and notices between the ranks of a job. Knows ranks and bytes, and nothing of
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

/// Goes before the bytes of a message.
struct Frame {
  MessageKey key;
  std::uint64_t size = 0;
  std::uint64_t fingerprint = 0;
  std::uint64_t number = 0;     // of those from this rank
  std::int32_t from = 0;        // rank; the wire fills it in
  bool waits_for_word = false;  // of its arrival, by a notice of the same number
};

enum class NoticeKind : std::int32_t { Arrived, Joined, AtBarrier, LetGo, Alive, Failed };

/// A few words without bytes of their own.
struct Notice {
  NoticeKind kind = NoticeKind::Alive;
  std::int32_t from = 0;     // rank; the wire fills it in
  std::int64_t moment = 0;   // of rank 0's clock
  std::uint64_t number = 0;  // of the message or barrier, or of what was agreed on
  std::uint64_t action = 0;  // packed
};

/// Called in the wire's thread, from before the wire's constructor has returned.
struct WireHandler {
  std::function<void(const Frame& frame, HostBytes bytes)> message;
  std::function<void(const Notice& notice)> notice;
  std::function<void()> turn;                           // again and again
  std::function<void(int rank)> lost;                   // it has gone without a word
  std::function<void(std::exception_ptr fault)> fault;  // of the wire itself
};

class RankWire {
 public:
  /// Without leave() before: ends the job everywhere.
  virtual ~RankWire() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual bool is_on_one_host() const = 0;
  /// From this host's clock to that of rank 0's host.
  virtual std::int64_t clock_offset() const = 0;
  /// For which a rank that was not the first to fail waits to be ended by the launcher.
  virtual std::chrono::milliseconds patience() const = 0;

  /// Zeroed memory that the ranks of one host share, as long as the wire lives. All ranks call it,
  /// once. Throws Error(Environment).
  virtual std::span<std::int64_t> shared_words(std::size_t count) = 0;

  /// What must live until `sent` is called, in the wire's thread, lives in the closure.
  virtual void send(int to, const Frame& frame, std::span<const std::byte> bytes,
                    std::function<void()> sent) = 0;
  virtual void send(int to, const Notice& notice) = 0;

  /// Ready once all ranks have called it; they may then leave.
  virtual std::future<void> leave() = 0;
};

}  // namespace dapple::exec
