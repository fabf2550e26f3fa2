// A job whose ranks find each other over TCP: rank 0 listens where all are told, the others tell it
// where they listen, and once all have come it tells everyone where the others are; then every rank
// calls those before it, so that each two have one connection.
//
// Who calls says which rank of how many it is, of which host, in which version of the protocol and
// with which byte order, and both sides prove that they know the job's secret, of which nothing is
// sent: a stranger, or one of another job, is turned away, and ends or delays nothing. A rank whose
// connection ends before all are here may come again; once they are nobody listens any more. So
// nobody without the secret becomes a rank, or has one take it for rank 0. Who can change what
// passes on a connection of ranks can still do so, and who can read it reads everything: messages
// are neither encrypted nor signed. Without a secret anybody who reaches the port can be a rank.
//
// A message is a frame that names it and its bytes in pieces of at most 1 MiB, between which
// notices pass, so that a sign of life never waits for a large message. A word of each frame, piece
// and notice tells whether it has changed on its way.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "dapple/exec/ranks/rank_job.h"

namespace dapple::exec {

/// A rank's place in its job, and where rank 0 is to be found. Where `address` is a loopback
/// address or "localhost", all ranks listen there only; else on every address of their host.
struct TcpPlace {
  int rank = 0;
  int size = 1;
  std::string address;      // of rank 0's host, or its name
  std::uint16_t port = 0;   // on which rank 0 listens
  std::string secret = {};  // that all ranks of the job have, and nobody else; empty: none
};

/// Whether it is a loopback address or "localhost".
bool is_loopback(const std::string& address);

/// Any number at a time. Throws Error(Environment) where rank 0 cannot listen, not all ranks come
/// in time, or rank 0 turns this one away; JobAborted where rank 0 says why it does not begin.
/// Requires: 0 <= rank < size, of which one needs neither address nor port.
std::unique_ptr<RankJob> start_tcp_job(const TcpPlace& place, std::chrono::nanoseconds timeout);

}  // namespace dapple::exec
