// Does nothing, for as long as the profile says: a plan of any model can be run with it, to see
// what its messages really do to each other.
//
// On the host a device sleeps, and what it sends are bytes that nobody has computed. On a GPU a
// thread of it spins in the stream of computation, messages lie in its memory, and gradients are
// added up there, as those of a training: behind each other in streams, without the host.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "dapple/cost/plan_cost.h"
#include "dapple/exec/run/backend.h"
#include "dapple/schedule/device_schedule.h"

namespace dapple::exec {

/// Everything that the stage computes takes so many times as long as the plan says.
struct SlowStage {
  StageIndex stage;
  Factor slowdown = kOne;
};

struct ReplayPace {
  Factor pace = kOne;                       // how many times longer everything takes
  std::vector<SlowStage> slow_stages = {};  // and what these compute, once more
};

/// What a device replays; must outlive its backend.
struct ReplayedDevice {
  const PlanCost& costs;
  const DeviceSchedule& schedule;
  std::size_t place = 0;  // among the plan's devices
};

using MakeReplayBackend =
    std::function<std::unique_ptr<Backend>(const ReplayedDevice& device, const ReplayPace& pace)>;

/// What is sent has its real size and no content.
std::unique_ptr<Backend> make_replay_backend(const ReplayedDevice& device, const ReplayPace& pace);

/// The same on GPU `gpu` of those that this process may use, of whose memory it takes as much as
/// its largest message in and out and its largest bucket. Throws Error(Environment) where that is
/// not free, or the program was built without CUDA.
std::unique_ptr<Backend> make_cuda_replay_backend(const ReplayedDevice& device,
                                                  const ReplayPace& pace, int gpu);

}  // namespace dapple::exec
