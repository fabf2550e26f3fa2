// Messages of activations and gradients that a device takes in whether or not they have been asked
// for: from whom, and how much memory that takes.
#pragma once

#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/plan/plan.h"
#include "dapple/schedule/device_schedule.h"

namespace dapple::exec {

/// Whom the device sends to or receives from, ascending. O(actions * peers).
std::vector<DeviceIndex> message_peers(const DeviceSchedule& device);

/// At most, at any moment. Of what a stage receives no more micro-batches can be on their way than
/// the earlier one of the two stages may have in flight; one more is being used. Every message
/// takes a multiple of 512 bytes, and 512 keep the memory. O(actions * peers).
Bytes message_memory(const Plan& plan, const DeviceSchedule& device);

}  // namespace dapple::exec
