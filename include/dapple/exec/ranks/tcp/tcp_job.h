// A job whose ranks find each other over TCP. Rank 0 listens at a known address; the other ranks
// tell it where they listen, and once all have connected it sends everyone the peer table. Then
// every rank connects to those before it, so that each pair of ranks has one connection.
//
// A connecting rank states its rank, the number of ranks, its host, its protocol version and its
// byte order, and both sides prove that they know the job's secret without sending any of it. A
// stranger or a rank of another job is turned away, and cannot end or delay the job. A rank whose
// connection breaks before all have connected may connect again; after that no rank listens any
// more. So nobody without the secret can become a rank or impersonate rank 0. Established
// connections are not protected: whoever can modify their data can alter messages, and whoever can
// read it sees everything, because messages are neither encrypted nor signed. Without a secret,
// anyone who can reach the port can become a rank.
//
// A message is a frame that describes it, followed by its bytes in pieces of at most 1 MiB. Notices
// are sent between the pieces, so that a heartbeat never waits for a large message. Each frame,
// piece and notice has a checksum word.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "dapple/exec/ranks/rank_job.h"

namespace dapple::exec {

/// The position of a rank in its job, and the address of rank 0. If `address` is a loopback address
/// or "localhost", all ranks listen on that address only; otherwise on every address of their host.
struct TcpPlace {
  int rank = 0;
  int size = 1;
  /// The address or name of rank 0's host.
  std::string address;
  /// The port on which rank 0 listens.
  std::uint16_t port = 0;
  /// The secret shared by all ranks of the job and by nobody else; empty if there is none.
  std::string secret = {};
};

/// Whether the address is a loopback address or "localhost".
bool is_loopback(const std::string& address);

/// Starts this process's part in the job. A process may have any number of jobs at a time. Throws
/// Error(Environment) if rank 0 cannot listen, if not all ranks connect within the timeout, or if
/// rank 0 turns this one away; throws JobAborted if rank 0 reports that it does not start.
/// Requires: 0 <= rank < size; a job of size 1 needs neither address nor port.
std::unique_ptr<RankJob> start_tcp_job(const TcpPlace& place, std::chrono::nanoseconds timeout);

}  // namespace dapple::exec
