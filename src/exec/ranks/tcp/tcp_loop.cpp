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

/// The time in which all other ranks close their connections, once all have left.
constexpr std::chrono::seconds kParting(1);
constexpr milliseconds kLook(2);

}  // namespace

TcpLoop::TcpLoop(WireHandler handler, const TcpPlace& place, std::chrono::nanoseconds timeout)
    : rank_(place.rank),
      size_(place.size),
      handler_(std::move(handler)),
      turn_(std::clamp<std::chrono::nanoseconds>(timeout / 100, milliseconds(1), milliseconds(20))),
      of_connections_({.message = handler_.message,
                       .notice = handler_.notice,
                       .leaving = [this](int rank) { note_leaving(rank); },
                       .lost = handler_.lost,
                       .nonsense =
                           [this](int rank) {
                             handler_.fault(std::make_exception_ptr(
                                 Error(ErrorKind::Environment, fmt::format("rank {}", rank),
                                       {{"",
                                         "expected what a rank says, but it sent other "
                                         "bytes"}})));
                           }}),
      stays_(asio::make_work_guard(context_)),
      turns_(context_),
      parting_(context_) {
  if (size_ > 1) rendezvous_ = rendezvous(context_, place, timeout);
  for (auto& [rank, socket] : rendezvous_.sockets) {
    connections_[rank] = std::make_shared<Connection>(std::move(socket), rank, of_connections_);
  }
  thread_ = std::thread([this] { serve(); });
}

TcpLoop::~TcpLoop() {
  asio::post(context_, [this] {
    if (!has_left_) return context_.stop();
    for (const auto& [rank, connection] : connections_) connection->close_sending();
    part(std::chrono::steady_clock::now() + kParting);
  });
  thread_.join();
}

/// Stops once all other ranks have closed their connections as well, so that what they have sent
/// does not meet a closed connection; at the latest at `end`.
void TcpLoop::part(std::chrono::steady_clock::time_point end) {
  const bool all_ended = std::all_of(connections_.begin(), connections_.end(),
                                     [](const auto& one) { return one.second->has_ended(); });
  if (all_ended || std::chrono::steady_clock::now() >= end) return context_.stop();
  parting_.expires_after(kLook);
  parting_.async_wait([this, end](const error_code&) { part(end); });
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
  turns_.expires_after(turn_);
  turns_.async_wait([this](const error_code& stopped) {
    if (!stopped) take_turns();
  });
}

std::span<std::int64_t> TcpLoop::shared_words(std::size_t count) {
  check(is_on_one_host() && count <= SharedWords::kCount, "more memory is shared than there is");
  if (rank_ != 0) {
    shared_ = SharedWords::look_at(rendezvous_.giver, rendezvous_.file, rendezvous_.job);
    return shared_.words().first(count);
  }
  if (size_ == 1) rendezvous_.given = SharedWords::give(rendezvous_.job);
  return rendezvous_.given.words().first(count);
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
        ++told_;
        note_leaving(rank_);
      });
    }
    note_leaving(rank_);
  });
  return left_.get_future();
}

void TcpLoop::note_leaving(int rank) {
  leaving_.insert(rank);
  if (has_left_ || told_ < connections_.size() || leaving_.size() <= connections_.size()) return;
  has_left_ = true;
  left_.set_value();
}

}  // namespace dapple::exec
