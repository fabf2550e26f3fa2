// The one thread of a process that calls MPI. Others hand it what is to be sent; what comes in is
// given, in this thread, to whoever handles it. Knows ranks and bytes, and nothing of plans.
#pragma once

#include <mpi.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "dapple/exec/transport.h"

namespace dapple {

/// Goes before the bytes of a message.
struct Frame {
  MessageKey key;
  std::uint64_t size = 0;
  std::uint64_t fingerprint = 0;
  std::uint64_t number = 0;     // of those from this rank
  std::int32_t from = 0;        // rank
  bool waits_for_word = false;  // of its arrival, by a notice of the same number
};

enum class NoticeKind : std::int32_t { Arrived, AtBarrier, LetGo, Alive, Failed };

/// A few words without bytes of their own.
struct Notice {
  NoticeKind kind = NoticeKind::Alive;
  std::int32_t from = 0;     // rank
  std::int64_t moment = 0;   // of rank 0's clock
  std::uint64_t number = 0;  // of the message or barrier
  std::uint64_t action = 0;  // packed
};

/// Called in the loop's thread; what throws ends the loop.
struct MpiHandler {
  std::function<void(const Frame& frame, Payload payload)> message;
  std::function<void(const Notice& notice)> notice;
  std::function<void()> turn;                           // again and again
  std::function<void(std::exception_ptr fault)> fault;  // that has ended the loop
};

class MpiLoop {
 public:
  /// Initialises MPI, for which all ranks have to come. Throws Error(Environment). If they do not
  /// come in time, MPI still waits for them, in a thread: then the process has to be ended by
  /// std::_Exit().
  MpiLoop(MpiHandler handler, std::chrono::nanoseconds timeout);
  /// Without leave() before: ends the job everywhere.
  ~MpiLoop();
  MpiLoop(const MpiLoop&) = delete;
  MpiLoop& operator=(const MpiLoop&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool is_on_one_host() const { return is_on_one_host_; }
  /// From this host's clock to that of rank 0's host.
  std::int64_t clock_offset() const { return clock_offset_; }

  /// Zeroed memory that the ranks of this host share, as long as the loop lives. All ranks call it.
  std::span<std::int64_t> shared_words(std::size_t count);

  /// What must live until `sent` is called, in the loop's thread, lives in the closure.
  void send(int to, const Frame& frame, std::span<const std::byte> bytes,
            std::function<void()> sent);
  void send(int to, const Notice& notice);

  /// Ready once all ranks have called it; they may then leave. MPI is finalised by the destructor.
  std::future<void> leave();

 private:
  using Work = std::function<void()>;

  void serve(std::promise<void>& initialised);
  void initialise();
  std::int64_t measured_clock_offset(bool shares_clock) const;
  void finalise();
  bool do_work();
  bool finish_requests();
  void hand_over(Work work);
  void track(MPI_Request request, Work finished);
  void await_frame();
  void await_notice();
  void take_in(const Frame& frame);

  int rank_ = 0;
  int size_ = 1;
  bool is_on_one_host_ = true;
  std::int64_t clock_offset_ = 0;

  const MpiHandler handler_;

  // Of the loop's thread.
  std::vector<MPI_Request> requests_;
  std::vector<Work> finished_;  // what follows each
  Frame frame_;                 // that comes next
  Notice notice_;
  MPI_Comm host_ = MPI_COMM_NULL;
  MPI_Win window_ = MPI_WIN_NULL;
  int turns_without_work_ = 0;
  bool has_left_ = false;

  std::mutex mutex_;
  std::condition_variable work_came_;
  std::deque<Work> work_;
  bool is_closed_ = false;
  std::jthread thread_;  // last: it uses all the others
};

}  // namespace dapple
