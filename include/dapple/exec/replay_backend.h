// Does nothing, for as long as the profile says: a plan of any model can be run with it, to see
// what its messages really do to each other.
#pragma once

#include <memory>
#include <vector>

#include "dapple/cost/costs.h"
#include "dapple/exec/backend.h"
#include "dapple/exec/replay.h"

namespace dapple {

struct ReplayPace {
  Factor pace = kOne;                       // how many times longer everything takes
  std::vector<SlowStage> slow_stages = {};  // and what these compute, once more
};

/// What is sent has its real size and no content. The costs must outlive it.
std::unique_ptr<Backend> make_replay_backend(const PlanCost& costs, DeviceIndex device,
                                             const ReplayPace& pace);

}  // namespace dapple
