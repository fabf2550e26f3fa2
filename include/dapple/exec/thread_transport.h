// Messages between threads of one process, through mailboxes; paced, if asked, as the links of a
// topology would let them pass.
//
// Pacing: each port has a token bucket that refills at its bandwidth and holds no more than what is
// on its way. A message passes in pieces, each through all ports of its route at once, first come,
// first served per piece, so that senders share a port piece by piece; nothing knows who else is
// there. Latency passes after the last piece. A piece is sent at the moment at which the tokens are
// there, not when its thread wakes up, so that late wake-ups do not add up.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/exec/transport.h"
#include "dapple/topology/topology.h"

namespace dapple {

struct ThreadTransportOptions {
  std::optional<Factor> pace;  // how many times slower than the topology; unpaced if not given
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);  // of every wait
};

/// What the devices' ends have in common. Outlives them.
class ThreadNetwork {
 public:
  /// `devices` take part in barriers. The topology must outlive it.
  ThreadNetwork(const Topology& topology, std::vector<DeviceIndex> devices,
                const ThreadTransportOptions& options);
  ~ThreadNetwork();
  ThreadNetwork(const ThreadNetwork&) = delete;
  ThreadNetwork& operator=(const ThreadNetwork&) = delete;

  std::unique_ptr<Transport> end_of(DeviceIndex device);

  /// Bytes that were sent so far, all messages together.
  Bytes sent() const;

 private:
  class State;
  class End;
  std::unique_ptr<State> state_;
};

}  // namespace dapple
