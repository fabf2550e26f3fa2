// The rendezvous of a job's ranks over TCP, before any of them starts.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <cstdint>
#include <map>

#include "dapple/exec/ranks/tcp/tcp_job.h"
#include "exec/ranks/tcp/shared_words.h"
#include "exec/ranks/tcp/tcp_protocol.h"

namespace dapple::exec {

/// The connections and properties of the job.
struct RendezvousResult {
  // Connections to all other ranks.
  std::map<int, boost::asio::ip::tcp::socket> sockets;
  bool is_on_one_host = true;
  // The offset from this host's clock to that of rank 0's host.
  std::int64_t clock_offset = 0;
  // The memory that rank 0 allocates if all ranks are on one host, with the process and the file
  // descriptor by which the others find it.
  SharedWords shared;
  std::int64_t owner = 0;
  std::int64_t file = 0;
  // The number that identifies the job.
  Word job = 0;
};

/// Runs the context until all ranks are connected. Throws as start_tcp_job(), after notifying the
/// ranks connected so far.
RendezvousResult rendezvous(boost::asio::io_context& context, const TcpPlace& place,
                            std::chrono::nanoseconds timeout);

}  // namespace dapple::exec
