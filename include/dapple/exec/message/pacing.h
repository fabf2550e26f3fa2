// How fast messages pass the links of a topology that are only played.
//
// Each port has a token bucket that refills at its bandwidth and holds no more than what is on its
// way. A message passes in pieces, each through all ports of its route at once, first come, first
// served per piece, so that senders share a port piece by piece; nothing knows who else is there.
// Latency passes after the last piece. A piece is sent at the moment at which the tokens are there,
// not when its thread wakes up, so that late wake-ups do not add up.
//
// The buckets lie in memory that their user gives, so that the processes of a host can share them.
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

/// What stage `from` sends to its neighbour `to` passes at the bandwidth divided by `slowdown`.
struct SlowLink {
  StageIndex from;
  StageIndex to;
  Factor slowdown = kOne;
};

struct Pacing {
  Factor pace = kOne;  // how many times slower than the topology, latencies too
  std::vector<SlowLink> slow_links = {};
};

class LinkPacer {
 public:
  /// Words of memory for the buckets of a topology.
  static std::size_t words(const Topology& topology) { return topology.ports().size() + 1; }

  /// `memory`: so many words, zero before the first of those who share it begins. Topology and
  /// memory must outlive it.
  LinkPacer(const Topology& topology, Pacing pacing, std::span<std::int64_t> memory);

  /// Sleeps until the last byte has left; the moment at which it is there. `before_piece` is called
  /// before every piece, and may throw to end it. Requires: key.from != key.to.
  std::int64_t pass(const MessageKey& key, Bytes size, const std::function<void()>& before_piece);

 private:
  struct Way {
    Route route;
    Factor slowed;  // how many times longer it takes than the topology says
  };
  Way way_of(const MessageKey& key) const;
  std::int64_t pass_piece(const Way& way, Bytes size, std::int64_t ready);

  const Topology& topology_;
  const Pacing pacing_;
  std::span<std::int64_t> memory_;  // a lock, then for each port from when on it is free
};

}  // namespace dapple::exec
