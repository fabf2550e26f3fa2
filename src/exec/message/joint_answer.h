// A decision that all devices have to share before they continue.
#pragma once

#include <cstddef>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/exec/message/transport.h"

namespace dapple::exec {

/// Returns whether any device answers yes; the result is the same on all of them. All devices call
/// it, each with its position `place`. As long as all answer no, only empty messages are sent,
/// which count no bytes and take no time on paced links. The messages have the key's iteration and
/// action, and its step and the next one.
bool any_says(bool answer, const std::vector<DeviceIndex>& devices, std::size_t place,
              MessageKey key, Transport& transport);

}  // namespace dapple::exec
