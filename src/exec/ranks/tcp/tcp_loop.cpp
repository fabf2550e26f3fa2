#include "exec/ranks/tcp/tcp_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <exception>
#include <utility>

#include "dapple/core/error.h"

namespace dapple::exec {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using std::chrono::milliseconds;

/// The time in which all other ranks close their connections, once all have left, and the interval
/// between two looks at whether they have.
constexpr std::chrono::seconds kCloseTimeout(1);
constexpr milliseconds kClosePollInterval(2);

}  // namespace

TcpLoop::TcpLoop(WireHandler handler, const TcpPlace& place, std::chrono::nanoseconds timeout)
    : rank_(place.rank),
      size_(place.size),
      handler_(std::move(handler)),
      turn_interval_(
          std::clamp<std::chrono::nanoseconds>(timeout / 100, milliseconds(1), milliseconds(20))),
      connection_handler_(
          {.message = handler_.message,
           .notice = handler_.notice,
           .leaving = [this](int rank) { note_leaving(rank); },
           .lost = handler_.lost,
           .violation =
               [this](int rank) {
                 handler_.fault(std::make_exception_ptr(Error(
                     ErrorKind::Environment, fmt::format("rank {}", rank),
                     {{"",
                       "expected it to send frames of the protocol, but it sent other bytes"}})));
               }}),
      work_guard_(asio::make_work_guard(context_)),
      turn_timer_(context_),
      close_timer_(context_) {
  if (size_ > 1) rendezvous_ = rendezvous(context_, place, timeout);
  for (auto& [rank, socket] : rendezvous_.sockets) {
    connections_[rank] = std::make_shared<Connection>(std::move(socket), rank, connection_handler_);
  }
  thread_ = std::thread([this] { serve(); });
}

TcpLoop::~TcpLoop() {
  asio::post(context_, [this] {
    if (!have_all_left_) return context_.stop();
    for (const auto& [rank, connection] : connections_) connection->close_sending();
    stop_once_closed(std::chrono::steady_clock::now() + kCloseTimeout);
  });
  thread_.join();
}

/// Stops once all other ranks have closed their connections as well, so that what they have sent
/// does not meet a closed connection; at the latest at `deadline`.
void TcpLoop::stop_once_closed(std::chrono::steady_clock::time_point deadline) {
  const bool all_ended = std::all_of(connections_.begin(), connections_.end(),
                                     [](const auto& one) { return one.second->has_ended(); });
  if (all_ended || std::chrono::steady_clock::now() >= deadline) return context_.stop();
  close_timer_.expires_after(kClosePollInterval);
  close_timer_.async_wait([this, deadline](const error_code&) { stop_once_closed(deadline); });
}

void TcpLoop::serve() {
  context_.restart();
  for (const auto& [rank, connection] : connections_) connection->start();
  take_turns();
  while (!context_.stopped()) {
    try {
      context_.run();
    } catch (...) { handler_.fault(std::current_exception()); }
  }
}

void TcpLoop::take_turns() {
  handler_.turn();
  turn_timer_.expires_after(turn_interval_);
  turn_timer_.async_wait([this](const error_code& stopped) {
    if (!stopped) take_turns();
  });
}

std::span<std::int64_t> TcpLoop::shared_words(std::size_t count) {
  check(is_on_one_host() && count <= SharedWords::kCount, "more memory is shared than there is");
  if (rank_ != 0) {
    shared_ = SharedWords::attach(rendezvous_.owner, rendezvous_.file, rendezvous_.job);
    return shared_.words().first(count);
  }
  if (size_ == 1) rendezvous_.shared = SharedWords::create(rendezvous_.job);
  return rendezvous_.shared.words().first(count);
}

void TcpLoop::send(int to, const Frame& frame, std::span<const std::byte> bytes,
                   std::function<void()> sent) {
  asio::post(context_, [this, to, frame, bytes, sent = std::move(sent)]() mutable {
    if (to != rank_) return connections_.at(to)->send(frame, bytes, std::move(sent));
    Frame own = frame;
    own.from = rank_;
    handler_.message(own, HostBytes(bytes.begin(), bytes.end()));
    sent();
  });
}

void TcpLoop::send(int to, const Notice& notice) {
  asio::post(context_, [this, to, notice] {
    if (to != rank_) return connections_.at(to)->send(header_of(notice));
    Notice own = notice;
    own.from = rank_;
    handler_.notice(own);
  });
}

std::future<void> TcpLoop::leave() {
  asio::post(context_, [this] {
    for (const auto& [rank, connection] : connections_) {
      connection->send(header_of(HeaderKind::Leaving), [this] {
        ++leave_notices_sent_;
        note_leaving(rank_);
      });
    }
    note_leaving(rank_);
  });
  return all_left_.get_future();
}

void TcpLoop::note_leaving(int rank) {
  leaving_ranks_.insert(rank);
  const std::size_t others = connections_.size();
  if (have_all_left_ || leave_notices_sent_ < others || leaving_ranks_.size() <= others) return;
  have_all_left_ = true;
  all_left_.set_value();
}

}  // namespace dapple::exec
