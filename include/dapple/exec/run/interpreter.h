// Runs one device's part of a schedule, action by action, over a backend and a transport. It knows
// no schedule of its own: what is done when is what the schedule's generator said.
//
// Streams: computation in the thread that calls run(); sends forward, sends backward and
// collectives each in a thread of their own, in their order. A receive waits in the computing
// thread, as it stands right before the computation that needs it.
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

/// One action as it was run, in moments of the transport's clock.
struct MeasuredAction {
  Action action;
  std::int64_t start = 0;
  std::int64_t end = 0;
  Bytes size;
};

/// The devices among which a bucket or tied gradients are reduced.
using GroupOf = std::function<ReductionGroup(const Action& reduction)>;

/// Called once an iteration: all gradients of the device are complete and reduced, and none of its
/// optimizer steps has begun.
using BeforeSteps = std::function<void(std::int64_t iteration)>;

class Interpreter {
 public:
  /// All must outlive it. With `before_steps`, steps wait for all buckets. Requires then: the
  /// device's steps stand behind all of its computations.
  Interpreter(const DeviceSchedule& schedule, GroupOf group_of, Backend& backend,
              Transport& transport, BeforeSteps before_steps = nullptr);

  /// One iteration; waits until all of it is done. The actions by their ends. Throws what backend
  /// and transport throw, once its streams are at rest; it has then aborted the transport.
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
