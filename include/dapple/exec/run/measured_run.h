// What the devices of a running plan have measured, brought together on the first of them.
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

/// An iteration on one device, in moments of the first device's clock.
struct MeasuredIteration {
  std::int64_t start = 0;  // behind a barrier
  std::vector<MeasuredAction> actions;
};

/// All that one device has measured.
struct DeviceMeasurements {
  Bytes sent;
  std::vector<MeasuredIteration> iterations;
};

/// Runs one iteration behind a barrier.
MeasuredIteration measure(Interpreter& interpreter, std::int64_t iteration, Transport& transport);

struct MeasuredRun {
  std::vector<Duration> iterations;  // in their order
  Duration median;                   // of them, the lower one of two
  Timeline timeline;                 // of that iteration, a lane for each device
  Bytes sent;                        // per iteration, by all devices together
};

/// What all devices have measured, on the first device alone; as messages of `iteration`, which is
/// none of those measured. Times are divided by `pace`. Requires: called by all devices, with as
/// many iterations, at least one. O(actions), times log iterations.
std::optional<MeasuredRun> gather(const DeviceMeasurements& own,
                                  const std::vector<DeviceSchedule>& devices, std::size_t place,
                                  std::int64_t iteration, Factor pace, Transport& transport);

}  // namespace dapple::exec
