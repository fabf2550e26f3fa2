// Executes one device's part of a schedule, action by action, on a backend and a transport. It
// makes no scheduling decisions of its own: the schedule's generator has fixed the order.
//
// Streams: computation runs in the thread that calls run(); forward sends, backward sends and
// collectives each run in order in a thread of their own. A receive blocks the computing thread,
// because it stands immediately before the computation that needs it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "dapple/exec/message/all_reduce.h"
#include "dapple/exec/message/transport.h"
#include "dapple/exec/run/backend.h"
#include "dapple/schedule/device_schedule.h"
#include "dapple/timeline/timeline.h"

namespace dapple::exec {

/// An action as it was executed, with times of the transport's clock.
struct MeasuredAction {
  Action action;
  std::int64_t start = 0;
  std::int64_t end = 0;
  Bytes size;
};

/// Returns the devices among which a bucket or tied gradients are reduced.
using GroupOf = std::function<ReductionGroup(const Action& reduction)>;

/// Called once per iteration, when all gradients of the device are complete and reduced and none of
/// its optimizer steps has begun.
using BeforeSteps = std::function<void(std::int64_t iteration)>;

/// Executes the schedule of one device.
class Interpreter {
 public:
  /// All arguments passed by reference must outlive the interpreter. With `before_steps`, optimizer
  /// steps wait for all buckets, and the device's steps are required to come after all of its
  /// computations.
  Interpreter(const DeviceSchedule& schedule, GroupOf group_of, Backend& backend,
              Transport& transport, BeforeSteps before_steps = nullptr);

  /// Executes one iteration, waits until it is complete, and returns its actions ordered by their
  /// end. Rethrows what the backend or the transport throws, after aborting the transport and
  /// waiting for its own streams.
  std::vector<MeasuredAction> run(std::int64_t iteration);

 private:
  class Run;
  const DeviceSchedule& schedule_;
  GroupOf group_of_;
  Backend& backend_;
  Transport& transport_;
  BeforeSteps before_steps_;
};

}  // namespace dapple::exec
