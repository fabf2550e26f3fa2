// Messages between threads of one process, through mailboxes, optionally paced like the links of a
// topology.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/exec/message/pacing.h"
#include "dapple/exec/message/transport.h"
#include "dapple/topology/topology.h"

namespace dapple::exec {

/// Options of a ThreadNetwork.
struct ThreadTransportOptions {
  /// Links are not paced if this is empty.
  std::optional<Pacing> pacing = {};
  /// The timeout of every wait.
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);
};

/// The state that the endpoints of all devices share. Must outlive them.
class ThreadNetwork {
 public:
  /// `devices` are those that take part in barriers. The topology must outlive the network.
  ThreadNetwork(const Topology& topology, std::vector<DeviceIndex> devices,
                ThreadTransportOptions options);
  ~ThreadNetwork();
  ThreadNetwork(const ThreadNetwork&) = delete;
  ThreadNetwork& operator=(const ThreadNetwork&) = delete;

  /// Returns the endpoint of a device.
  std::unique_ptr<Transport> end_of(DeviceIndex device);

  /// Returns the bytes of all messages sent so far by all devices.
  Bytes sent() const;

 private:
  class State;
  class End;
  std::unique_ptr<State> state_;
};

}  // namespace dapple::exec
