// Activations and gradients that a device receives eagerly, before they are requested: from which
// peers they come, and how much memory they take; and with which devices it exchanges anything.
#pragma once

#include <set>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/exec/message/all_reduce.h"
#include "dapple/plan/plan.h"
#include "dapple/schedule/device_schedule.h"

namespace dapple::exec {

/// Returns the devices that this one sends to or receives from, in ascending order. O(actions *
/// peers).
std::vector<DeviceIndex> message_peers(const DeviceSchedule& device);

/// Returns an upper bound on the memory that received messages take at any moment. The number of
/// micro-batches in transit to a device is at most the number that the earlier of the two stages
/// may have in flight: of activations, on all replicas together to which it deals micro-batches; of
/// gradients, on the device itself. One more is in use. Every message is rounded up to a multiple
/// of 512 bytes, and another 512 bytes keep the memory alive. O(actions * peers).
Bytes message_memory(const Plan& plan, const DeviceSchedule& device);

/// The other devices with which one exchanges what lies in its memory.
struct DeviceConnections {
  /// Those of messages, in either direction.
  std::vector<DeviceIndex> peers;
  ReductionSizes reductions;
  /// Whether reductions may be halves of all-reduces.
  bool scatters = false;
  /// The groups, in ascending order, whose members send messages to each other (all_to_all()). They
  /// have reductions too.
  std::set<std::vector<DeviceIndex>> exchanges = {};
  /// The memory of received messages.
  Bytes inbox;
};

/// Returns the connections of one of the plan's devices. O(actions * peers * log peers).
DeviceConnections connections_of(const Plan& plan, const DeviceSchedule& device);

}  // namespace dapple::exec
