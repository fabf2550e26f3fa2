#include "exec/ranks/tcp/rendezvous_server.h"

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

namespace dapple::exec {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

/// The pause before the next attempt if a connection could not be accepted, for example for lack of
/// file descriptors.
constexpr std::chrono::milliseconds kAcceptRetryPause(100);

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
  Call(asio::ip::tcp::socket of, RankAdmission::Caller number, const Transcript& start)
      : socket(std::move(of)), caller(number), transcript(start) {}

  asio::ip::tcp::socket socket;
  const RankAdmission::Caller caller;
  Transcript transcript;
  Proof proof{};
  Verdict verdict = Verdict::Unproven;
  std::array<Word, std::tuple_size_v<AnswerWords> + std::tuple_size_v<Proof>> answer{};
  Word question = 0;
  std::int64_t moment = 0;
};

RendezvousServer::RendezvousServer(asio::io_context& context, const TcpPlace& place,
                                   std::uint16_t port)
    : context_(context),
      admission_(place.secret, most_unproven()),
      acceptor_(listening(context, place.address, port)),
      pause_(context),
      deadline_(context) {}

RendezvousServer::~RendezvousServer() {
  // Runs the handlers of pending operations now, because they refer to this object.
  error_code ignored;
  for (const auto& [caller, call] : calls_) call->socket.close(ignored);
  acceptor_.close(ignored);
  pause_.cancel();
  deadline_.cancel();
  context_.restart();
  context_.poll();
}

void RendezvousServer::open(const ExpectedRanks& expected, const Answer& answer) {
  admission_.open(expected, answer);
  await_call();
}

std::map<int, PendingPeer> RendezvousServer::take_peers() {
  error_code ignored;
  for (auto& [rank, peer] : peers_) peer.socket.cancel(ignored);
  return std::exchange(peers_, {});
}

void RendezvousServer::await_call() {
  acceptor_.async_accept([this](const error_code& fault, asio::ip::tcp::socket socket) {
    if (fault == asio::error::operation_aborted) return;
    if (fault && !(is_lack_of_files(fault) && drop(admission_.oldest_unproven()))) {
      pause_.expires_after(kAcceptRetryPause);
      return pause_.async_wait([this](const error_code& stopped) {
        if (!stopped) await_call();
      });
    }
    if (!fault) take(std::move(socket));
    await_call();
  });
}

void RendezvousServer::take(asio::ip::tcp::socket socket) {
  drop(admission_.next_to_evict());
  const RankAdmission::Caller caller = admission_.enter(monotonic_now());
  const auto call = std::make_shared<Call>(std::move(socket), caller, admission_.new_transcript());
  calls_.emplace(caller, call);
  await_deadline();
  challenge(call);
}

/// Closes the connection of this caller; returns false if there is none to be closed.
bool RendezvousServer::drop(std::optional<RankAdmission::Caller> caller) {
  if (!caller) return false;
  reject(std::shared_ptr<Call>(calls_.at(*caller)));
  return true;
}

void RendezvousServer::await_deadline() {
  const std::optional<std::int64_t> next = admission_.next_deadline();
  if (!next || std::exchange(awaits_deadline_, true)) return;
  deadline_.expires_at(std::chrono::steady_clock::time_point(std::chrono::nanoseconds(*next)));
  deadline_.async_wait([this](const error_code& stopped) {
    if (stopped) return;
    awaits_deadline_ = false;
    for (const RankAdmission::Caller caller : admission_.overdue(monotonic_now())) drop(caller);
    await_deadline();
  });
}

template <class Buffers, class Next>
void RendezvousServer::read(const std::shared_ptr<Call>& call, const Buffers& buffers, Next next) {
  asio::async_read(call->socket, buffers, [this, call, next](const error_code& fault, std::size_t) {
    // What was read just before the connection was closed here is not heeded any more.
    if (fault || calls_.count(call->caller) == 0) return reject(call);
    next();
  });
}

/// The first words have the same meaning in all protocol versions, so a caller of another version
/// is told so.
void RendezvousServer::challenge(const std::shared_ptr<Call>& call) {
  const auto first = asio::buffer(call->transcript.hello.data(), kProtocolWords * sizeof(Word));
  const auto send = [this, call](const auto& next) {
    asio::async_write(call->socket, asio::buffer(call->transcript.challenge),
                      [this, call, next](const error_code& fault, std::size_t) {
                        if (fault) return reject(call);
                        next();
                      });
  };
  read(call, first, [this, call, send] {
    HelloWords& words = call->transcript.hello;
    if (!is_rank(words)) return reject(call);
    call->transcript.challenge = challenge_of(drawn_nonce());
    if (!has_own_protocol(words)) return send([this, call] { reject(call); });
    read(call, asio::buffer(words) + kProtocolWords * sizeof(Word), [this, call, send] {
      send([this, call] { read(call, asio::buffer(call->proof), [this, call] { judge(call); }); });
    });
  });
}

void RendezvousServer::judge(const std::shared_ptr<Call>& call) {
  const ProvenAnswer answer = admission_.judge(call->caller, call->transcript, call->proof);
  call->verdict = answer.verdict;
  std::copy(answer.proof.begin(), answer.proof.end(),
            std::copy(answer.words.begin(), answer.words.end(), call->answer.begin()));
  asio::async_write(call->socket, asio::buffer(call->answer),
                    [this, call](const error_code& fault, std::size_t) {
                      if (fault || call->verdict != Verdict::Welcome) return reject(call);
                      tell_time(call);
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

/// Closes a connection that failed or was turned away; the caller may connect again.
void RendezvousServer::reject(const std::shared_ptr<Call>& call) {
  error_code ignored;
  call->socket.close(ignored);
  calls_.erase(call->caller);
  admission_.leave(call->caller);
}

void RendezvousServer::accept(const std::shared_ptr<Call>& call) {
  const int rank = admission_.admit(call->caller);
  calls_.erase(call->caller);
  peers_.emplace(rank, PendingPeer{.socket = std::move(call->socket),
                                   .hello = hello_of(call->transcript.hello)});
  if (admission_.expected().is_silent) watch(rank);
}

/// A silent pending peer whose socket becomes readable has disconnected, or is about to.
void RendezvousServer::watch(int rank) {
  peers_.at(rank).socket.async_wait(asio::socket_base::wait_read,
                                    [this, rank](const error_code& stopped) {
                                      if (stopped || admission_.is_complete()) return;
                                      peers_.erase(rank);
                                      admission_.forget(rank);
                                    });
}

}  // namespace dapple::exec
