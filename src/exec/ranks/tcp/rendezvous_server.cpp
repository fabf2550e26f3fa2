#include "exec/ranks/tcp/rendezvous_server.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <utility>

#include "exec/message/clock.h"
#include "exec/ranks/tcp/tcp_proof.h"

namespace dapple::exec {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

/// The time in which a caller has to prove its identity and to finish asking for the time.
constexpr std::chrono::seconds kIntroduction(5);
/// The pause before the next attempt if a connection could not be accepted, for example for lack of
/// file descriptors.
constexpr std::chrono::milliseconds kPause(100);

asio::ip::tcp::acceptor listening(asio::io_context& context, const asio::ip::address& address,
                                  std::uint16_t port) {
  asio::ip::tcp::acceptor acceptor(context);
  const asio::ip::tcp::endpoint endpoint(address, port);
  acceptor.open(endpoint.protocol());
  acceptor.set_option(asio::socket_base::reuse_address(true));
  if (address.is_v6()) acceptor.set_option(asio::ip::v6_only(address.is_loopback()));
  acceptor.bind(endpoint);
  acceptor.listen();
  return acceptor;
}

/// Listens on the job's loopback address, or on all addresses of this host.
asio::ip::tcp::acceptor listening(asio::io_context& context, const std::string& address,
                                  std::uint16_t port) {
  if (is_loopback(address)) {
    error_code is_name;
    const asio::ip::address literal = asio::ip::make_address(address, is_name);
    return listening(context, is_name ? asio::ip::address_v4::loopback() : literal, port);
  }
  try {
    return listening(context, asio::ip::address_v6::any(), port);
  } catch (const boost::system::system_error& fault) {
    if (fault.code() == asio::error::address_in_use) throw;
    return listening(context, asio::ip::address_v4::any(), port);  // a host without IPv6
  }
}

/// Returns the number of unproven connections that are allowed: a quarter of the files that this
/// process may open, within bounds. The rest is for other ranks and for the process itself.
std::size_t most_unproven() {
  constexpr rlim_t kLeast = 8;
  constexpr rlim_t kMost = 1024;
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return kLeast;
  return std::clamp<rlim_t>(files.rlim_cur / 4, kLeast, kMost);
}

bool is_lack_of_files(const error_code& fault) {
  return fault == asio::error::no_descriptors ||
         fault == boost::system::errc::too_many_files_open_in_system;
}

}  // namespace

struct RendezvousServer::Call {
  explicit Call(asio::ip::tcp::socket of)
      : socket(std::move(of)), deadline(socket.get_executor(), kIntroduction) {}

  int rank() const { return static_cast<int>(hello.rank); }

  asio::ip::tcp::socket socket;
  asio::steady_timer deadline;
  Talk talk;
  Hello hello;
  Proof proof{};
  bool is_proven = false;
  Verdict verdict = Verdict::Unproven;
  std::array<Word, std::tuple_size_v<AnswerWords> + std::tuple_size_v<Proof>> answer{};
  Word question = 0;
  std::int64_t moment = 0;
};

RendezvousServer::RendezvousServer(asio::io_context& context, const TcpPlace& place,
                                   std::uint16_t port)
    : context_(context),
      secret_(place.secret),
      most_unproven_(most_unproven()),
      acceptor_(listening(context, place.address, port)),
      pause_(context) {}

RendezvousServer::~RendezvousServer() {
  // Runs the handlers of pending operations now, because they refer to this object.
  for (const auto& call : calls_) {
    call->deadline.cancel();
    error_code ignored;
    call->socket.close(ignored);
  }
  error_code ignored;
  acceptor_.close(ignored);
  pause_.cancel();
  context_.restart();
  context_.poll();
}

void RendezvousServer::open(const ExpectedRanks& expected, const Answer& answer) {
  expected_ = expected;
  answer_ = answer;
  await_call();
}

bool RendezvousServer::is_complete() const {
  return static_cast<int>(peers_.size()) == expected_.size - expected_.first;
}

int RendezvousServer::missing() const {
  int rank = expected_.first;
  while (peers_.count(rank) > 0) ++rank;
  return rank;
}

void RendezvousServer::await_call() {
  acceptor_.async_accept([this](const error_code& fault, asio::ip::tcp::socket socket) {
    if (fault == asio::error::operation_aborted) return;
    if (fault && !(is_lack_of_files(fault) && drop_oldest())) {
      pause_.expires_after(kPause);
      return pause_.async_wait([this](const error_code& stopped) {
        if (!stopped) await_call();
      });
    }
    if (!fault) take(std::move(socket));
    await_call();
  });
}

std::size_t RendezvousServer::unproven() const {
  return static_cast<std::size_t>(std::count_if(calls_.begin(), calls_.end(),
                                                [](const auto& call) { return !call->is_proven; }));
}

/// Closes the oldest unproven connection; returns false if there is none.
bool RendezvousServer::drop_oldest() {
  const auto oldest =
      std::find_if(calls_.begin(), calls_.end(), [](const auto& call) { return !call->is_proven; });
  if (oldest == calls_.end()) return false;
  reject(std::shared_ptr<Call>(*oldest));
  return true;
}

void RendezvousServer::take(asio::ip::tcp::socket socket) {
  if (unproven() >= most_unproven_) drop_oldest();
  const auto call = std::make_shared<Call>(std::move(socket));
  calls_.push_back(call);
  call->deadline.async_wait([call](const error_code& stopped) {
    error_code ignored;
    if (!stopped) call->socket.close(ignored);
  });
  challenge(call);
}

/// Closes a connection that failed or was turned away; the caller may connect again.
void RendezvousServer::reject(const std::shared_ptr<Call>& call) {
  call->deadline.cancel();
  error_code ignored;
  call->socket.close(ignored);
  const bool was_here = std::erase(calls_, call) > 0;
  if (was_here && call->verdict == Verdict::Welcome) greeted_.erase(call->rank());
}

template <class Buffers, class Next>
void RendezvousServer::read(const std::shared_ptr<Call>& call, const Buffers& buffers, Next next) {
  asio::async_read(call->socket, buffers, [this, call, next](const error_code& fault, std::size_t) {
    if (fault) return reject(call);
    next();
  });
}

/// The first words have the same meaning in all protocol versions, so a caller of another version
/// is told so.
void RendezvousServer::challenge(const std::shared_ptr<Call>& call) {
  const auto first = asio::buffer(call->talk.hello.data(), kProtocolWords * sizeof(Word));
  const auto send = [this, call](const auto& next) {
    asio::async_write(call->socket, asio::buffer(call->talk.challenge),
                      [this, call, next](const error_code& fault, std::size_t) {
                        if (fault) return reject(call);
                        next();
                      });
  };
  read(call, first, [this, call, send] {
    HelloWords& words = call->talk.hello;
    if (!is_rank(words)) return reject(call);
    call->talk.challenge = challenge_of(drawn_nonce());
    if (!has_own_protocol(words)) return send([this, call] { reject(call); });
    read(call, asio::buffer(words) + kProtocolWords * sizeof(Word), [this, call, send] {
      call->hello = hello_of(call->talk.hello);
      call->talk.called = expected_.rank;
      call->talk.job = expected_.known_job;
      send([this, call] { read(call, asio::buffer(call->proof), [this, call] { judge(call); }); });
    });
  });
}

Verdict RendezvousServer::verdict_on(const Call& call) const {
  constexpr Word kLastPort = 0xFFFF;
  const Hello& hello = call.hello;
  if (!is_same(call.proof, caller_proof(secret_, call.talk))) return Verdict::Unproven;
  if (hello.size != static_cast<Word>(expected_.size)) return Verdict::OtherSize;
  if (hello.rank < static_cast<Word>(expected_.first) || hello.rank >= hello.size ||
      hello.port == 0 || hello.port > kLastPort) {
    return Verdict::NoSuchRank;
  }
  return greeted_.count(call.rank()) > 0 ? Verdict::Taken : Verdict::Welcome;
}

void RendezvousServer::judge(const std::shared_ptr<Call>& call) {
  call->verdict = verdict_on(*call);
  call->is_proven = call->verdict != Verdict::Unproven;
  if (call->verdict == Verdict::Welcome) {
    greeted_.insert(call->rank());
  } else {
    turned_away_ = fmt::format("a rank {} of {}{}", call->hello.rank, call->hello.size,
                               call->is_proven ? "" : ", with another secret or job,");
  }
  answer(call);
}

void RendezvousServer::answer(const std::shared_ptr<Call>& call) {
  Answer answer{.verdict = call->verdict};
  if (call->is_proven) answer.size = answer_.size;
  if (call->verdict == Verdict::Welcome) answer = answer_;
  const AnswerWords words = words_of(answer);
  // This rank proves nothing to a caller that has not proven anything itself.
  const Proof proof = call->is_proven ? answer_proof(secret_, call->talk, answer) : Proof{};
  std::copy(proof.begin(), proof.end(),
            std::copy(words.begin(), words.end(), call->answer.begin()));
  asio::async_write(call->socket, asio::buffer(call->answer),
                    [this, call](const error_code& fault, std::size_t) {
                      if (fault || call->verdict != Verdict::Welcome) return reject(call);
                      tell_time(call);
                    });
}

void RendezvousServer::accept(const std::shared_ptr<Call>& call) {
  call->deadline.cancel();
  peers_.emplace(call->rank(),
                 PendingPeer{.socket = std::move(call->socket), .hello = call->hello});
  std::erase(calls_, call);
  if (expected_.is_silent) watch(call->rank());
}

std::map<int, PendingPeer> RendezvousServer::take_peers() {
  error_code ignored;
  for (auto& [rank, peer] : peers_) peer.socket.cancel(ignored);
  return std::exchange(peers_, {});
}

/// A silent pending peer whose socket becomes readable has disconnected, or is about to.
void RendezvousServer::watch(int rank) {
  peers_.at(rank).socket.async_wait(asio::socket_base::wait_read,
                                    [this, rank](const error_code& stopped) {
                                      if (stopped || is_complete()) return;
                                      peers_.erase(rank);
                                      greeted_.erase(rank);
                                    });
}

/// Answers the caller's questions for the time until it sends 0.
void RendezvousServer::tell_time(const std::shared_ptr<Call>& call) {
  read(call, asio::buffer(&call->question, sizeof call->question), [this, call] {
    if (call->question == 0) return accept(call);
    call->moment = monotonic_now();
    asio::async_write(call->socket, asio::buffer(&call->moment, sizeof call->moment),
                      [this, call](const error_code& fault, std::size_t) {
                        if (fault) return reject(call);
                        tell_time(call);
                      });
  });
}

}  // namespace dapple::exec
