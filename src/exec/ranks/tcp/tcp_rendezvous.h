// How the ranks of a job find each other over TCP, before any of them begins.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>

#include "dapple/exec/ranks/tcp/tcp_job.h"
#include "exec/ranks/tcp/shared_words.h"
#include "exec/ranks/tcp/tcp_protocol.h"

namespace dapple::exec {

/// What comes of it.
struct RendezvousResult {
  std::map<int, boost::asio::ip::tcp::socket> sockets;  // to all other ranks
  bool is_on_one_host = true;
  std::int64_t clock_offset = 0;  // from this host's clock to that of rank 0's
  /// Where all are on one host: rank 0 gives memory, as which file of which process.
  SharedWords given;
  std::int64_t giver = 0;
  std::int64_t file = 0;
  Word job = 0;
};

/// Runs the context until all have met. Throws as start_tcp_job(); those that were met are told.
RendezvousResult rendezvous(boost::asio::io_context& context, const TcpPlace& place,
                            std::chrono::nanoseconds timeout);

}  // namespace dapple::exec
