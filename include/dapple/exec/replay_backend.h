// Does nothing, for as long as the profile says: a plan of any model can be run with it, to see
// what its messages really do to each other.
#pragma once

#include <memory>

#include "dapple/cost/costs.h"
#include "dapple/exec/backend.h"

namespace dapple {

/// `pace`: how many times longer everything takes. What is sent has its real size and no content.
/// The costs must outlive it.
std::unique_ptr<Backend> make_replay_backend(const PlanCost& costs, DeviceIndex device,
                                             Factor pace);

}  // namespace dapple
