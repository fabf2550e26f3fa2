// Where a rank is called by others: has them prove who they are, says who is welcome, and turns
// everyone else away.
//
// Whoever has not proven anything is given a few seconds, and is the first to go, the oldest before
// the others, where as many wait as leave the process the files that it needs itself.
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

/// Which ranks are expected: from `first` to size - 1, of the job that they know.
struct ExpectedRanks {
  int rank = 0;  // that they call
  int first = 0;
  int size = 1;
  Word known_job = 0;
  /// A guest says nothing more until all are here. Who has gone before may come again.
  bool is_silent = false;
};

struct PendingPeer {
  boost::asio::ip::tcp::socket socket;
  Hello hello;
};

class RendezvousServer {
 public:
  /// Listens at once. Throws boost::system::system_error.
  RendezvousServer(boost::asio::io_context& context, const TcpPlace& place, std::uint16_t port);
  ~RendezvousServer();

  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }

  /// Talks with whoever calls, answers with `answer` where it is welcome, and tells it the time as
  /// often as it asks. The context runs it.
  void open(const ExpectedRanks& expected, const Answer& answer);

  bool is_complete() const;
  /// The lowest that is missing. Requires: not complete.
  int missing() const;
  /// Who has come, by rank.
  std::map<int, PendingPeer>& peers() { return peers_; }
  /// They are no longer looked after.
  std::map<int, PendingPeer> take_peers();
  /// "a rank 1 of 3", the last one that was turned away; empty if there was none.
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
  std::list<std::shared_ptr<Call>> calls_;  // by their age
  std::map<int, PendingPeer> peers_;
  std::string turned_away_;
};

}  // namespace dapple::exec
