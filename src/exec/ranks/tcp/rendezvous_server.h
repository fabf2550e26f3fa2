// Accepts the connections of other ranks during the rendezvous, and answers the callers;
// RankAdmission decides who of them is admitted.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "dapple/exec/ranks/tcp/handshake.h"
#include "dapple/exec/ranks/tcp/rank_admission.h"
#include "dapple/exec/ranks/tcp/tcp_job.h"

namespace dapple::exec {

/// A rank that has been admitted.
struct PendingPeer {
  boost::asio::ip::tcp::socket socket;
  Hello hello;
};

/// The listening side of the rendezvous.
class RendezvousServer {
 public:
  /// Starts to listen. Throws boost::system::system_error.
  RendezvousServer(boost::asio::io_context& context, const TcpPlace& place, std::uint16_t port);
  ~RendezvousServer();

  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }

  /// Starts to answer callers. An admitted one receives `answer`, and the time as often as it
  /// asks. All of this runs in the context.
  void open(const ExpectedRanks& expected, const Answer& answer);

  /// Returns who has been admitted, who is missing, and who was turned away.
  const RankAdmission& admission() const { return admission_; }
  /// Returns the admitted ranks.
  std::map<int, PendingPeer>& peers() { return peers_; }
  /// Returns the admitted ranks and stops watching their connections.
  std::map<int, PendingPeer> take_peers();

 private:
  struct Call;

  void await_call();
  void take(boost::asio::ip::tcp::socket socket);
  bool drop(std::optional<RankAdmission::Caller> caller);
  void await_deadline();
  template <class Buffers, class Next>
  void read(const std::shared_ptr<Call>& call, const Buffers& buffers, Next next);
  void challenge(const std::shared_ptr<Call>& call);
  void judge(const std::shared_ptr<Call>& call);
  void tell_time(const std::shared_ptr<Call>& call);
  void reject(const std::shared_ptr<Call>& call);
  void accept(const std::shared_ptr<Call>& call);
  void watch(int rank);

  boost::asio::io_context& context_;
  RankAdmission admission_;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer pause_;
  // Expires when the time of the oldest caller is over.
  boost::asio::steady_timer deadline_;
  bool awaits_deadline_ = false;
  std::map<RankAdmission::Caller, std::shared_ptr<Call>> calls_;
  std::map<int, PendingPeer> peers_;
};

}  // namespace dapple::exec
