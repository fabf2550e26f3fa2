// Gathers the measurements of all devices of a running plan on the first device.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/exec/message/transport.h"
#include "dapple/exec/run/interpreter.h"
#include "dapple/schedule/device_schedule.h"
#include "dapple/timeline/timeline.h"

namespace dapple::exec {

/// One iteration on one device, with times of the first device's clock.
struct MeasuredIteration {
  /// The time after the barrier that precedes the iteration.
  std::int64_t start = 0;
  std::vector<MeasuredAction> actions;
};

/// All measurements of one device.
struct DeviceMeasurements {
  Bytes sent;
  std::vector<MeasuredIteration> iterations;
};

/// Runs one iteration after a barrier.
MeasuredIteration measure(Interpreter& interpreter, std::int64_t iteration, Transport& transport);

/// The measurements of all devices together.
struct MeasuredRun {
  /// The duration of each iteration, in order.
  std::vector<Duration> iterations;
  /// The median duration; the lower one of the two middle values if their number is even.
  Duration median;
  /// The timeline of the iteration with that duration, with one lane per device.
  Timeline timeline;
  /// The bytes sent per iteration by all devices together.
  Bytes sent;
};

/// Returns the measurements of all devices on the first device, and nothing on the others. They are
/// sent as messages of `iteration`, which must not be one of the measured iterations. `place` is
/// the device's position in `devices`; times are divided by `pace`. Requires: all devices call it,
/// with the same number of iterations, at least one. O(actions * log iterations).
std::optional<MeasuredRun> gather(const DeviceMeasurements& own,
                                  const std::vector<DeviceSchedule>& devices, std::size_t place,
                                  std::int64_t iteration, Factor pace, Transport& transport);

}  // namespace dapple::exec
