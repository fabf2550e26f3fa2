#include "tcp_reception.h"

#include <fmt/format.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <utility>

#include "clock.h"

namespace dapple::tcp {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

/// In which a caller has to say who it is.
constexpr std::chrono::seconds kIntroduction(5);
/// Before the next try where no call could be taken, as with too many open files.
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

/// On the loopback address that all are told, or on all addresses of this host.
asio::ip::tcp::acceptor listening(asio::io_context& context, const std::string& address,
                                  std::uint16_t port) {
  if (address == "localhost") return listening(context, asio::ip::address_v4::loopback(), port);
  error_code is_name;
  const asio::ip::address literal = asio::ip::make_address(address, is_name);
  if (!is_name && literal.is_loopback()) return listening(context, literal, port);
  try {
    return listening(context, asio::ip::address_v6::any(), port);
  } catch (const boost::system::system_error& fault) {
    if (fault.code() == asio::error::address_in_use) throw;
    return listening(context, asio::ip::address_v4::any(), port);  // a host without IPv6
  }
}

}  // namespace

struct Reception::Call {
  explicit Call(asio::ip::tcp::socket of)
      : socket(std::move(of)), patience(socket.get_executor(), kIntroduction) {}

  asio::ip::tcp::socket socket;
  asio::steady_timer patience;
  HelloWords hello{};
  AnswerWords answer{};
  Word question = 0;
  std::int64_t moment = 0;
};

Reception::Reception(asio::io_context& context, const std::string& address, std::uint16_t port)
    : context_(context), acceptor_(listening(context, address, port)), pause_(context) {}

Reception::~Reception() {
  // What is under way would come back to what is no more.
  for (const auto& call : calls_) {
    call->patience.cancel();
    error_code ignored;
    call->socket.close(ignored);
  }
  error_code ignored;
  acceptor_.close(ignored);
  pause_.cancel();
  context_.restart();
  context_.poll();
}

void Reception::open(const Expected& expected, const Answer& answer) {
  expected_ = expected;
  answer_ = answer;
  await_call();
}

bool Reception::is_complete() const {
  return static_cast<int>(guests_.size()) == expected_.size - expected_.first;
}

int Reception::missing() const {
  int rank = expected_.first;
  while (guests_.count(rank) > 0) ++rank;
  return rank;
}

void Reception::await_call() {
  acceptor_.async_accept([this](const error_code& fault, asio::ip::tcp::socket socket) {
    if (fault == asio::error::operation_aborted) return;
    if (fault) {
      pause_.expires_after(kPause);
      return pause_.async_wait([this](const error_code& stopped) {
        if (!stopped) await_call();
      });
    }
    const auto call = std::make_shared<Call>(std::move(socket));
    calls_.insert(call);
    greet(call);
    await_call();
  });
}

void Reception::hang_up(const std::shared_ptr<Call>& call) {
  call->patience.cancel();
  error_code ignored;
  call->socket.close(ignored);
  calls_.erase(call);
}

Verdict Reception::judge(const HelloWords& words) const {
  if (!has_own_protocol(words)) return Verdict::OtherProtocol;
  const Hello hello = hello_of(words);
  if (hello.job != expected_.named_job) return Verdict::OtherJob;
  if (hello.size != expected_.size) return Verdict::OtherSize;
  if (hello.rank < expected_.first || hello.rank >= expected_.size) return Verdict::NoSuchRank;
  return greeted_.count(hello.rank) > 0 ? Verdict::Taken : Verdict::Welcome;
}

void Reception::greet(const std::shared_ptr<Call>& call) {
  call->patience.async_wait([call](const error_code& stopped) {
    error_code ignored;
    if (!stopped) call->socket.close(ignored);
  });
  const auto answered = [this, call](const error_code& fault, std::size_t) {
    const bool is_welcome = call->answer == words_of(answer_);
    if (!fault && is_welcome) return tell_time(call);
    if (is_welcome) greeted_.erase(hello_of(call->hello).rank);
    hang_up(call);
  };
  asio::async_read(call->socket, asio::buffer(call->hello),
                   [this, call, answered](const error_code& fault, std::size_t) {
                     if (fault || !is_rank(call->hello)) return hang_up(call);
                     Answer answer = answer_;
                     answer.verdict = judge(call->hello);
                     call->answer = words_of(answer);
                     const Hello hello = hello_of(call->hello);
                     if (answer.verdict == Verdict::Welcome) {
                       greeted_.insert(hello.rank);
                     } else {
                       turned_away_ = fmt::format("a rank {} of {}", hello.rank, hello.size);
                     }
                     asio::async_write(call->socket, asio::buffer(call->answer), answered);
                   });
}

void Reception::seat(const std::shared_ptr<Call>& call) {
  call->patience.cancel();
  const Hello hello = hello_of(call->hello);
  guests_.emplace(hello.rank, Guest{.socket = std::move(call->socket), .hello = hello});
  calls_.erase(call);
  if (expected_.is_silent) watch(hello.rank);
}

std::map<int, Guest> Reception::take_guests() {
  error_code ignored;
  for (auto& [rank, guest] : guests_) guest.socket.cancel(ignored);
  return std::exchange(guests_, {});
}

/// A silent guest that can be read from has gone, or is about to.
void Reception::watch(int rank) {
  guests_.at(rank).socket.async_wait(asio::socket_base::wait_read,
                                     [this, rank](const error_code& stopped) {
                                       if (stopped || is_complete()) return;
                                       guests_.erase(rank);
                                       greeted_.erase(rank);
                                     });
}

/// Until the caller has had enough: asks with 0.
void Reception::tell_time(const std::shared_ptr<Call>& call) {
  const auto give_up = [this, call] {
    greeted_.erase(hello_of(call->hello).rank);
    hang_up(call);
  };
  const auto asked = [this, call, give_up](const error_code& fault, std::size_t) {
    if (fault) return give_up();
    if (call->question == 0) return seat(call);
    call->moment = monotonic_now();
    asio::async_write(call->socket, asio::buffer(&call->moment, sizeof call->moment),
                      [this, call, give_up](const error_code& failed, std::size_t) {
                        if (failed) return give_up();
                        tell_time(call);
                      });
  };
  asio::async_read(call->socket, asio::buffer(&call->question, sizeof call->question), asked);
}

}  // namespace dapple::tcp
