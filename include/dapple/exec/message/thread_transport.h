// Messages between threads of one process, through mailboxes; paced, if asked, as the links of a
// topology would let them pass.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/exec/message/pacing.h"
#include "dapple/exec/message/transport.h"
#include "dapple/topology/topology.h"

namespace dapple::exec {

struct ThreadTransportOptions {
  std::optional<Pacing> pacing = {};                            // unpaced if not given
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);  // of every wait
};

/// What the devices' ends have in common. Outlives them.
class ThreadNetwork {
 public:
  /// `devices` take part in barriers. The topology must outlive it.
  ThreadNetwork(const Topology& topology, std::vector<DeviceIndex> devices,
                ThreadTransportOptions options);
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

}  // namespace dapple::exec
