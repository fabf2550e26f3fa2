// A backend whose computations only take the time that the profile says, so that a plan of any
// model can be run to observe how its messages affect each other.
//
// If replicas shard the optimizer's state, gradients are reduced and scattered, and the time of the
// step is that of the update and of the all-gather of parameters, which are not sent.
//
// On the host a device sleeps, and it sends bytes without content. On a GPU one thread spins in the
// compute stream, messages are in GPU memory, and gradients are added there as in a training:
// enqueued in streams, without waiting on the host.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "dapple/cost/plan_cost.h"
#include "dapple/exec/run/backend.h"
#include "dapple/schedule/device_schedule.h"

namespace dapple::exec {

/// A stage whose computations all take `slowdown` times as long as the plan says.
struct SlowStage {
  StageIndex stage;
  Factor slowdown = kOne;
};

struct ReplayPace {
  /// The factor by which everything takes longer.
  Factor pace = kOne;
  /// Stages that are slowed down in addition.
  std::vector<SlowStage> slow_stages = {};
};

/// What a device replays; costs and schedule must outlive its backend.
struct ReplayedDevice {
  const PlanCost& costs;
  const DeviceSchedule& schedule;
  std::size_t place = 0;  // index among the plan's devices
};

using MakeReplayBackend =
    std::function<std::unique_ptr<Backend>(const ReplayedDevice& device, const ReplayPace& pace)>;

/// Makes a backend on the host, whose messages have their real size and no content.
std::unique_ptr<Backend> make_replay_backend(const ReplayedDevice& device, const ReplayPace& pace);

/// Makes a backend on GPU `gpu` of those that this process may use. It allocates GPU memory for its
/// largest message in each direction and its largest bucket. Throws Error(Environment) if that is
/// not free, or if the program was built without CUDA.
std::unique_ptr<Backend> make_cuda_replay_backend(const ReplayedDevice& device,
                                                  const ReplayPace& pace, int gpu);

}  // namespace dapple::exec
