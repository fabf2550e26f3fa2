#include "exec/ranks/tcp/tcp_rendezvous.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/exec/ranks/clock_comparison.h"
#include "dapple/exec/ranks/tcp/handshake.h"
#include "dapple/exec/ranks/tcp/tcp_proof.h"
#include "exec/message/clock.h"
#include "exec/message/waiting.h"
#include "exec/ranks/parked_thread.h"
#include "exec/ranks/tcp/rendezvous_server.h"

namespace dapple::exec {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::nanoseconds;
using Moment = std::chrono::steady_clock::time_point;
using Places = std::vector<tcp::endpoint>;

/// The pause before another call if the last one was not answered.
constexpr std::chrono::milliseconds kRetryPause(50);
/// The time in which a called rank has to answer.
constexpr std::chrono::seconds kHandshakeTimeout(5);
/// The time by which the others wait longer than rank 0, which knows who is missing.
constexpr std::chrono::seconds kPeerTimeoutMargin(1);

/// Identifies the running kernel and the container; processes with the same identity share the
/// clock and the process numbers. Returns 0 if it cannot be determined.
Word host_identity() {
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string identity{std::istreambuf_iterator<char>(boot), {}};
  std::array<char, 64> container{};
  const ssize_t length = readlink("/proc/self/ns/pid", container.data(), container.size());
  if (identity.empty() || length <= 0) return 0;
  identity.append(container.data(), static_cast<std::size_t>(length));
  return fingerprint(std::as_bytes(std::span(identity)));
}

/// The address that rank 0 sends of each rank but itself.
struct PeerAddress {
  // IPv6; IPv4 addresses are mapped into it.
  std::array<unsigned char, 16> address{};
  Word port = 0;
};

struct PeerTable {
  std::int64_t owner = 0;
  std::int64_t file = 0;
  Word is_on_one_host = 0;
};

class Rendezvous {
 public:
  Rendezvous(asio::io_context& context, const TcpPlace& place, nanoseconds timeout)
      : context_(context),
        place_(place),
        timeout_(timeout),
        end_(std::chrono::steady_clock::now() + timeout) {}

  RendezvousResult connect_as_root();
  RendezvousResult connect_as_peer();
  /// Tells all connected ranks that this one has failed.
  void notify_failure() noexcept;

 private:
  bool run_until(Moment end, const std::function<bool()>& condition);
  template <class Begin>
  error_code await(tcp::socket& socket, Moment end, Begin begin);
  Places resolve_root();
  tcp::socket call(int rank, const Places& places, Answer& answer);
  std::optional<Answer> handshake(tcp::socket& socket, int rank, const Places& places,
                                  error_code& fault);
  template <class Buffers>
  error_code read(tcp::socket& socket, Moment end, const Buffers& buffers);
  template <class Buffers>
  error_code write(tcp::socket& socket, Moment end, const Buffers& buffers);
  void compare_clocks(tcp::socket& socket, int rank, bool shares_clock);
  std::vector<PeerAddress> receive_peer_table(tcp::socket& first);
  /// Returns the remote address of a connected rank.
  asio::ip::address address_of(const tcp::socket& socket, int rank) const;
  void connect_to_lower_ranks(const std::vector<PeerAddress>& ranks);
  void take_peers();
  void send_peer_table();
  Error error(const std::string& message) const {
    return {ErrorKind::Environment, fmt::format("rank {}", place_.rank), {{"start", message}}};
  }
  Error turned_away(int by, const Answer& answer) const;
  Error disconnected(int rank, const error_code& fault) const;
  Error missing() const;

  asio::io_context& context_;
  const TcpPlace& place_;
  // How long this rank waits for the others, and the end of that wait.
  nanoseconds timeout_;
  Moment end_;
  const Word host_ = host_identity();
  std::unique_ptr<RendezvousServer> server_;
  RendezvousResult result_;
};

bool Rendezvous::run_until(Moment end, const std::function<bool()>& condition) {
  while (!condition()) {
    if (context_.stopped()) context_.restart();
    if (context_.run_one_until(end) == 0 && std::chrono::steady_clock::now() >= end) {
      return condition();
    }
  }
  return true;
}

/// Waits for an asynchronous operation; on timeout closes the socket, which ends the operation.
template <class Begin>
error_code Rendezvous::await(tcp::socket& socket, Moment end, Begin begin) {
  std::optional<error_code> result;
  begin([&result](const error_code& fault, const auto&) { result = fault; });
  const auto has_ended = [&] { return result.has_value(); };
  if (run_until(end, has_ended)) return *result;
  error_code ignored;
  socket.close(ignored);
  run_until(Moment::max(), has_ended);
  return asio::error::timed_out;
}

/// Resolves the address of rank 0 in a separate thread, because the resolver cannot be interrupted.
/// Returns nothing on timeout.
Places Rendezvous::resolve_root() {
  std::packaged_task<Places()> task([address = place_.address, port = place_.port] {
    asio::io_context context;
    Places places;
    tcp::resolver resolver(context);
    for (const auto& found : resolver.resolve(address, std::to_string(port))) {
      places.push_back(found.endpoint());
    }
    return places;
  });
  std::future<Places> places = task.get_future();
  std::thread resolving(std::move(task));
  if (places.wait_until(end_) != std::future_status::ready) {
    park(std::move(resolving));
    return {};
  }
  resolving.join();
  return places.get();
}

Error Rendezvous::turned_away(int by, const Answer& answer) const {
  const std::string rejected = fmt::format("rejected by rank {}: ", by);
  switch (answer.verdict) {
    case Verdict::OtherSize:
      return error(
          fmt::format("expected a job of {} ranks, got one of {}", place_.size, answer.size));
    case Verdict::Taken:
      return error(rejected + fmt::format("expected one rank {}, got two", place_.rank));
    case Verdict::Unproven:
      if (by == 0) {
        return error(rejected + fmt::format("expected the job's secret, got {}",
                                            place_.secret.empty() ? "none" : "another"));
      }
      return error(rejected + "expected the secret and the number of its job, got another");
    default:
      return error(rejected +
                   fmt::format("expected a rank that is to call it, got rank {}", place_.rank));
  }
}

Error Rendezvous::disconnected(int rank, const error_code& fault) const {
  return error(
      fmt::format("expected rank {} to stay connected, got \"{}\"", rank, fault.message()));
}

template <class Buffers>
error_code Rendezvous::read(tcp::socket& socket, Moment end, const Buffers& buffers) {
  return await(socket, end, [&](auto done) { asio::async_read(socket, buffers, std::move(done)); });
}

template <class Buffers>
error_code Rendezvous::write(tcp::socket& socket, Moment end, const Buffers& buffers) {
  return await(socket, end,
               [&](auto done) { asio::async_write(socket, buffers, std::move(done)); });
}

/// Performs one handshake. Returns nothing if the other side is no rank, or does not know the
/// secret. Throws if it is a rank that uses another protocol, or turns this one away.
std::optional<Answer> Rendezvous::handshake(tcp::socket& socket, int rank, const Places& places,
                                            error_code& fault) {
  const Moment end = std::min(end_, std::chrono::steady_clock::now() + kHandshakeTimeout);
  fault =
      await(socket, end, [&](auto done) { asio::async_connect(socket, places, std::move(done)); });
  if (fault) return std::nullopt;
  socket.set_option(tcp::no_delay(true), fault);
  Transcript transcript{.called = rank,
                        .job = result_.job,
                        .hello = words_of(Hello{.rank = static_cast<Word>(place_.rank),
                                                .size = static_cast<Word>(place_.size),
                                                .port = server_->port(),
                                                .host = host_,
                                                .nonce = drawn_nonce()})};
  fault = write(socket, end, asio::buffer(transcript.hello));
  if (!fault) fault = read(socket, end, asio::buffer(transcript.challenge));
  if (fault || !is_rank(transcript.challenge)) return std::nullopt;
  if (!has_own_protocol(transcript.challenge)) {
    throw error(
        fmt::format("expected the protocol version and byte order of rank {}, got others", rank));
  }
  const Proof own = caller_proof(place_.secret, transcript);
  AnswerWords words{};
  Proof theirs{};
  fault = write(socket, end, asio::buffer(own));
  const std::array<asio::mutable_buffer, 2> buffers{asio::buffer(words), asio::buffer(theirs)};
  if (!fault) fault = read(socket, end, buffers);
  if (fault) return std::nullopt;
  const Answer answer = answer_of(words);
  if (!is_credible(place_.secret, transcript, answer, theirs)) return std::nullopt;
  if (answer.verdict != Verdict::Welcome) throw turned_away(rank, answer);
  return answer;
}

/// Calls repeatedly until a rank of the job answers.
tcp::socket Rendezvous::call(int rank, const Places& places, Answer& answer) {
  while (true) {
    tcp::socket socket(context_);
    error_code fault;
    if (const std::optional<Answer> got = handshake(socket, rank, places, fault)) {
      answer = *got;
      return socket;
    }
    if (std::chrono::steady_clock::now() + kRetryPause >= end_) {
      const std::string got = !fault ? "an answer that no rank of this job gives"
                              : fault == asio::error::timed_out ? "no answer"
                              : fault == asio::error::eof       ? "a connection that was closed"
                                                                : '"' + fault.message() + '"';
      throw error(fmt::format("expected rank {} at {}:{} within {} s, got {}", rank,
                              rank == 0 ? place_.address : places.front().address().to_string(),
                              places.front().port(), seconds_of(timeout_), got));
    }
    run_until(std::chrono::steady_clock::now() + kRetryPause, [] { return false; });
  }
}

/// Ends the conversation with a called rank, after asking it for the time unless both share a
/// clock.
void Rendezvous::compare_clocks(tcp::socket& socket, int rank, bool shares_clock) {
  constexpr int kRoundTrips = ClockComparison::kRoundTrips;
  constexpr std::int64_t kLatest = INT64_MAX / 4;
  ClockComparison comparison;
  for (int i = shares_clock ? kRoundTrips : 0; i <= kRoundTrips; ++i) {
    const Word question = i < kRoundTrips ? 1 : 0;
    std::int64_t theirs = 0;
    const std::int64_t start = monotonic_now();
    error_code fault = write(socket, end_, asio::buffer(&question, sizeof question));
    if (!fault && question != 0) {
      fault = read(socket, end_, asio::buffer(&theirs, sizeof theirs));
    }
    if (fault) throw disconnected(rank, fault);
    if (theirs < 0 || theirs > kLatest) {
      throw error(fmt::format("expected the time from rank {}, got {}", rank, theirs));
    }
    const std::int64_t end = monotonic_now();
    if (question != 0) comparison.add(start, theirs, end);
  }
  if (!shares_clock) result_.clock_offset = comparison.offset();
}

std::vector<PeerAddress> Rendezvous::receive_peer_table(tcp::socket& first) {
  FrameHeader header{};
  error_code fault = read(first, end_, asio::buffer(header));
  std::vector<PeerAddress> ranks(static_cast<std::size_t>(place_.size));
  PeerTable table;
  if (!fault && has_right_checksum(header) && kind_of(header) == HeaderKind::Notice) {
    throw JobAborted("rank 0 has failed");
  }
  const std::array<asio::mutable_buffer, 2> buffers{asio::buffer(&table, sizeof table),
                                                    asio::buffer(ranks)};
  if (!fault && (!has_right_checksum(header) || kind_of(header) != HeaderKind::PeerTable ||
                 size_of(header) != asio::buffer_size(buffers))) {
    throw error("expected the addresses of all ranks from rank 0, got other bytes");
  }
  if (!fault) fault = read(first, end_, buffers);
  if (fault) {
    if (fault != asio::error::timed_out) throw disconnected(0, fault);
    throw error(fmt::format("expected the addresses of all ranks from rank 0 within {} s, got none",
                            seconds_of(timeout_)));
  }
  result_.owner = table.owner;
  result_.file = table.file;
  result_.is_on_one_host = table.is_on_one_host != 0;
  return ranks;
}

asio::ip::address_v6 as_v6(const asio::ip::address& address) {
  return address.is_v6() ? address.to_v6()
                         : asio::ip::make_address_v6(asio::ip::v4_mapped, address.to_v4());
}

asio::ip::address unmapped(const asio::ip::address_v6& address) {
  if (!address.is_v4_mapped()) return address;
  return asio::ip::make_address_v4(asio::ip::v4_mapped, address);
}

asio::ip::address Rendezvous::address_of(const tcp::socket& socket, int rank) const {
  boost::system::error_code fault;
  const tcp::endpoint there = socket.remote_endpoint(fault);
  if (fault) throw disconnected(rank, fault);
  return there.address();
}

void Rendezvous::connect_to_lower_ranks(const std::vector<PeerAddress>& ranks) {
  const asio::ip::address first = unmapped(as_v6(address_of(result_.sockets.at(0), 0)));
  for (int rank = 1; rank < place_.rank; ++rank) {
    const PeerAddress& there = ranks[static_cast<std::size_t>(rank)];
    const asio::ip::address reported = unmapped(asio::ip::address_v6(there.address));
    // A rank that rank 0 sees at a loopback address is on the host of rank 0.
    const asio::ip::address address = reported.is_loopback() ? first : reported;
    if (there.port == 0 || there.port > kLastPort) {
      throw error(
          fmt::format("expected the port of rank {} from rank 0, got {}", rank, there.port));
    }
    Answer answer;
    tcp::socket socket =
        call(rank, {tcp::endpoint(address, static_cast<std::uint16_t>(there.port))}, answer);
    compare_clocks(socket, rank, true);
    result_.sockets.emplace(rank, std::move(socket));
  }
}

void Rendezvous::take_peers() {
  for (auto& [rank, peer] : server_->take_peers()) {
    result_.sockets.emplace(rank, std::move(peer.socket));
  }
  server_.reset();
}

Error Rendezvous::missing() const {
  std::string rejected;
  if (!server_->admission().turned_away().empty()) {
    rejected = fmt::format("; {} was rejected", server_->admission().turned_away());
  }
  return error(fmt::format("expected all {} ranks to connect within {} s, but rank {} did not{}",
                           place_.size, seconds_of(timeout_), server_->admission().missing(),
                           rejected));
}

void Rendezvous::send_peer_table() {
  std::vector<PeerAddress> ranks(static_cast<std::size_t>(place_.size));
  for (const auto& [rank, peer] : server_->peers()) {
    ranks[static_cast<std::size_t>(rank)] = {
        .address = as_v6(address_of(peer.socket, rank)).to_bytes(), .port = peer.hello.port};
    result_.is_on_one_host = result_.is_on_one_host && host_ != 0 && peer.hello.host == host_;
  }
  if (result_.is_on_one_host) {
    result_.shared = SharedWords::create(result_.job);
    result_.owner = getpid();
    result_.file = result_.shared.file();
  }
  const PeerTable table{.owner = result_.owner,
                        .file = result_.file,
                        .is_on_one_host = result_.is_on_one_host ? Word{1} : Word{0}};
  const FrameHeader header =
      header_of(HeaderKind::PeerTable, sizeof table + ranks.size() * sizeof(PeerAddress));
  const std::array<asio::const_buffer, 3> buffers{
      asio::buffer(header), asio::buffer(&table, sizeof table), asio::buffer(ranks)};
  for (auto& [rank, peer] : server_->peers()) {
    error_code fault;
    asio::write(peer.socket, buffers, fault);
    if (fault) throw disconnected(rank, fault);
  }
}

RendezvousResult Rendezvous::connect_as_root() {
  try {
    server_ = std::make_unique<RendezvousServer>(context_, place_, place_.port);
  } catch (const boost::system::system_error& fault) {
    throw error(fmt::format("expected port {} to listen on, got \"{}\"", place_.port,
                            fault.code().message()));
  }
  result_.job = drawn_nonce().front() | 1;
  server_->open({.rank = 0, .first = 1, .size = place_.size, .known_job = 0, .is_silent = true},
                {.size = static_cast<Word>(place_.size), .host = host_, .job = result_.job});
  if (!run_until(end_, [&] { return server_->admission().is_complete(); })) throw missing();
  send_peer_table();
  take_peers();
  return std::move(result_);
}

RendezvousResult Rendezvous::connect_as_peer() {
  try {
    server_ = std::make_unique<RendezvousServer>(context_, place_, std::uint16_t{0});
  } catch (const boost::system::system_error& fault) {
    throw error(fmt::format("expected a port to listen on, got \"{}\"", fault.code().message()));
  }
  Places places;
  try {
    places = resolve_root();
  } catch (const boost::system::system_error& fault) {
    throw error(fmt::format("expected the host of rank 0, got \"{}\": {}", place_.address,
                            fault.code().message()));
  }
  if (places.empty()) {
    throw error(fmt::format("expected the address of \"{}\" within {} s, got none", place_.address,
                            seconds_of(timeout_)));
  }
  Answer answer;
  tcp::socket first = call(0, places, answer);
  timeout_ += kPeerTimeoutMargin;
  end_ = std::chrono::steady_clock::now() + timeout_;
  result_.job = answer.job;
  server_->open({.rank = place_.rank,
                 .first = place_.rank + 1,
                 .size = place_.size,
                 .known_job = answer.job,
                 .is_silent = false},
                {.size = static_cast<Word>(place_.size), .host = host_, .job = answer.job});
  compare_clocks(first, 0, host_ != 0 && answer.host == host_);
  const std::vector<PeerAddress> ranks = receive_peer_table(first);
  result_.sockets.emplace(0, std::move(first));
  connect_to_lower_ranks(ranks);
  if (!run_until(end_, [&] { return server_->admission().is_complete(); })) throw missing();
  take_peers();
  return std::move(result_);
}

void Rendezvous::notify_failure() noexcept {
  const FrameHeader failed = header_of(
      Notice{.kind = NoticeKind::Failure, .moment = monotonic_now() + result_.clock_offset});
  const auto tell = [&](tcp::socket& socket) {
    error_code ignored;
    asio::write(socket, asio::buffer(failed), ignored);
  };
  for (auto& [rank, socket] : result_.sockets) tell(socket);
  if (!server_) return;
  for (auto& [rank, peer] : server_->peers()) tell(peer.socket);
}

}  // namespace

RendezvousResult rendezvous(asio::io_context& context, const TcpPlace& place, nanoseconds timeout) {
  Rendezvous attempt(context, place, timeout);
  try {
    return place.rank == 0 ? attempt.connect_as_root() : attempt.connect_as_peer();
  } catch (...) {
    attempt.notify_failure();
    throw;
  }
}

}  // namespace dapple::exec
