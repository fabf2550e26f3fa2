// What all devices have to know alike before they go on.
#pragma once

#include <cstddef>
#include <vector>

#include "dapple/exec/message/transport.h"
#include "dapple/schedule/device_schedule.h"

namespace dapple::exec {

/// Whether any of the devices says yes, the same on all of them; all ask, each from its place among
/// them. While nobody does, only messages without bytes pass, which neither count nor take any time
/// on links that are paced. They are those of the key's iteration and action, and of its step and
/// the next.
bool any_says(bool answer, const std::vector<DeviceSchedule>& devices, std::size_t place,
              MessageKey key, Transport& transport);

}  // namespace dapple::exec
