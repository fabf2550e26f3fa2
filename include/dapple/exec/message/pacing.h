// Emulates the speed of a topology's links for messages that do not really pass over them.
//
// Each port has a token bucket that refills at the port's bandwidth and holds no more than the
// piece that is passing. A message is split into pieces; each piece passes all ports of its route
// at once, first come, first served, so that concurrent senders share a port piece by piece without
// knowing of each other. The latency is added after the last piece. A piece is accounted at the
// time at which its tokens are available, not when its thread wakes up, so that delayed wake-ups do
// not accumulate.
//
// The buckets lie in memory provided by the caller, so that the processes of a host can share them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/exec/message/transport.h"
#include "dapple/topology/topology.h"

namespace dapple::exec {

/// A slowed-down link: what stage `from` sends to its neighbour `to` passes at the bandwidth
/// divided by `slowdown`.
struct SlowLink {
  StageIndex from;
  StageIndex to;
  Factor slowdown = kOne;
};

/// How links are emulated.
struct Pacing {
  /// How many times slower than the topology all links are, latencies included.
  Factor pace = kOne;
  std::vector<SlowLink> slow_links = {};
};

/// Delays messages to the speed of a topology's links.
class LinkPacer {
 public:
  /// The number of words of memory that the buckets of a topology take.
  static std::size_t words(const Topology& topology) { return topology.ports().size() + 1; }

  /// `memory` has words(topology) words, which must be zero before the first of the pacers that
  /// share it is used. The topology and the memory must outlive the pacer.
  LinkPacer(const Topology& topology, Pacing pacing, std::span<std::int64_t> memory);

  /// Sleeps until the last byte has left, and returns the time at which it arrives. `before_piece`
  /// is called before every piece, and may throw to abandon the message. Requires: key.from !=
  /// key.to.
  std::int64_t pass(const MessageKey& key, Bytes size, const std::function<void()>& before_piece);

 private:
  struct Way {
    Route route;
    /// How many times longer the transfer takes than the topology says.
    Factor slowed;
  };
  Way way_of(const MessageKey& key) const;
  std::int64_t pass_piece(const Way& way, Bytes size, std::int64_t ready);

  const Topology& topology_;
  const Pacing pacing_;
  /// A lock word, then for each port the time from which it is free.
  std::span<std::int64_t> memory_;
};

}  // namespace dapple::exec
