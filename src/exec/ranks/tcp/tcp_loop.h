// The one thread of a process that serves its connections with all other ranks.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <thread>

#include "dapple/exec/ranks/rank_wire.h"
#include "dapple/exec/ranks/tcp/tcp_job.h"
#include "exec/ranks/tcp/tcp_connection.h"
#include "exec/ranks/tcp/tcp_rendezvous.h"

namespace dapple::exec {

/// Connects the ranks by TCP.
class TcpLoop : public RankWire {
 public:
  /// Throws as start_tcp_job().
  TcpLoop(WireHandler handler, const TcpPlace& place, std::chrono::nanoseconds timeout);
  ~TcpLoop() override;
  TcpLoop(const TcpLoop&) = delete;
  TcpLoop& operator=(const TcpLoop&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool is_on_one_host() const override { return rendezvous_.is_on_one_host; }
  std::int64_t clock_offset() const override { return rendezvous_.clock_offset; }
  std::chrono::milliseconds launcher_grace_period() const override {
    return std::chrono::seconds(1);
  }
  std::span<std::int64_t> shared_words(std::size_t count) override;
  void send(int to, const Frame& frame, std::span<const std::byte> bytes,
            std::function<void()> sent) override;
  void send(int to, const Notice& notice) override;
  std::future<void> leave() override;

 private:
  void serve();
  void take_turns();
  void note_leaving(int rank);
  void stop_once_closed(std::chrono::steady_clock::time_point deadline);

  const int rank_;
  const int size_;
  const WireHandler handler_;
  // The interval between two turns.
  const std::chrono::nanoseconds turn_interval_;
  ConnectionHandler connection_handler_;
  boost::asio::io_context context_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_guard_;
  boost::asio::steady_timer turn_timer_;
  boost::asio::steady_timer close_timer_;
  RendezvousResult rendezvous_;
  SharedWords shared_;
  std::map<int, std::shared_ptr<Connection>> connections_;

  // The ranks that have called leave(). The members from here to `have_all_left_` are used by the
  // loop's thread only.
  std::set<int> leaving_ranks_;
  // The number of ranks to which this rank's leaving has been sent.
  std::size_t leave_notices_sent_ = 0;
  // Fulfilled once all ranks have called leave().
  std::promise<void> all_left_;
  bool have_all_left_ = false;

  // Declared last, because it uses all other members.
  std::thread thread_;
};

}  // namespace dapple::exec
