// The one thread of a process that calls MPI. Other threads hand it what is to be sent; it passes
// incoming messages to a handler.
#pragma once

#include <mpi.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "dapple/exec/ranks/rank_wire.h"

namespace dapple::exec {

/// Connects the ranks by MPI.
class MpiLoop : public RankWire {
 public:
  /// Initializes MPI, which waits for all ranks. Throws Error(Environment) if that fails. If not
  /// all ranks start within the timeout, a parked thread remains inside MPI, and the process has to
  /// be ended by std::_Exit().
  MpiLoop(WireHandler handler, std::chrono::nanoseconds timeout);
  ~MpiLoop() override;
  MpiLoop(const MpiLoop&) = delete;
  MpiLoop& operator=(const MpiLoop&) = delete;

  int rank() const override { return world_.rank; }
  int size() const override { return world_.size; }
  bool is_on_one_host() const override { return world_.is_on_one_host; }
  std::int64_t clock_offset() const override { return world_.clock_offset; }
  std::chrono::milliseconds launcher_grace_period() const override {
    return std::chrono::seconds(5);
  }
  std::span<std::int64_t> shared_words(std::size_t count) override;
  void send(int to, const Frame& frame, std::span<const std::byte> bytes,
            std::function<void()> sent) override;
  void send(int to, const Notice& notice) override;
  /// MPI is finalized by the destructor.
  std::future<void> leave() override;

 private:
  using Work = std::function<void()>;
  struct Start;
  struct World {
    int rank = 0;
    int size = 1;
    bool is_on_one_host = true;
    std::int64_t clock_offset = 0;
    // The ranks of this host.
    MPI_Comm host = MPI_COMM_NULL;
  };

  static World initialize_world();
  void await_start(const std::shared_ptr<Start>& start, std::chrono::nanoseconds timeout);
  void begin(const World& world);
  void serve();
  void finalize();
  bool do_work();
  bool finish_requests();
  void hand_over(Work work);
  void track(MPI_Request request, Work finished);
  void await_frame();
  void await_notice();
  void take_in(const Frame& frame);

  World world_;

  const WireHandler handler_;

  // The members from here to `have_all_left_` are used by the loop's thread only.
  std::vector<MPI_Request> requests_;
  // What to do when the request of the same index completes.
  std::vector<Work> finished_;
  // The next frame and notice to arrive.
  Frame frame_;
  Notice notice_;
  MPI_Win window_ = MPI_WIN_NULL;
  int turns_without_work_ = 0;
  bool have_all_left_ = false;

  std::mutex mutex_;
  std::condition_variable work_added_;
  std::deque<Work> work_;
  bool is_closed_ = false;
  // Declared last, because it uses all other members.
  std::thread thread_;
};

}  // namespace dapple::exec
