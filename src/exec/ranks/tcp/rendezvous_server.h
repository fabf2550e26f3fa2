// Accepts the connections of other ranks during the rendezvous: verifies their identity, admits
// those that are expected, and turns everyone else away.
//
// A caller that has not proven its identity has a few seconds to do so. If the number of such
// callers reaches the limit that leaves the process the file descriptors that it needs itself, the
// oldest of them is dropped.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "dapple/exec/ranks/tcp/tcp_job.h"
#include "exec/ranks/tcp/tcp_protocol.h"

namespace dapple::exec {

/// The ranks that are expected to connect, from `first` to size - 1, and the job that they know.
struct ExpectedRanks {
  // The rank that they call.
  int rank = 0;
  int first = 0;
  int size = 1;
  Word known_job = 0;
  // Whether a pending peer sends nothing more until all are here. One that disconnects before may
  // connect again.
  bool is_silent = false;
};

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

  /// Starts to talk to callers. An admitted one receives `answer`, and the time as often as it
  /// asks. All of this runs in the context.
  void open(const ExpectedRanks& expected, const Answer& answer);

  /// Whether all expected ranks have been admitted.
  bool is_complete() const;
  /// Returns the lowest missing rank. Requires: not complete.
  int missing() const;
  /// Returns the admitted ranks.
  std::map<int, PendingPeer>& peers() { return peers_; }
  /// Returns the admitted ranks and stops watching their connections.
  std::map<int, PendingPeer> take_peers();
  /// Describes the last caller that was turned away, such as "a rank 1 of 3"; empty if there was
  /// none.
  const std::string& turned_away() const { return turned_away_; }

 private:
  struct Call;

  void await_call();
  void take(boost::asio::ip::tcp::socket socket);
  bool drop_oldest();
  std::size_t unproven() const;
  template <class Buffers, class Next>
  void read(const std::shared_ptr<Call>& call, const Buffers& buffers, Next next);
  void challenge(const std::shared_ptr<Call>& call);
  void judge(const std::shared_ptr<Call>& call);
  void answer(const std::shared_ptr<Call>& call);
  void tell_time(const std::shared_ptr<Call>& call);
  void reject(const std::shared_ptr<Call>& call);
  void accept(const std::shared_ptr<Call>& call);
  void watch(int rank);
  Verdict verdict_on(const Call& call) const;

  boost::asio::io_context& context_;
  const std::string secret_;
  const std::size_t most_unproven_;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer pause_;
  ExpectedRanks expected_;
  Answer answer_;
  std::set<int> greeted_;
  // Ordered by age, the oldest first.
  std::list<std::shared_ptr<Call>> calls_;
  std::map<int, PendingPeer> peers_;
  std::string turned_away_;
};

}  // namespace dapple::exec
