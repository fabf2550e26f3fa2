// What a plan costs: its stages, the transfers between them, and its tied gradients. There are no
// times of day here: when each of these happens is simulated.
#pragma once

#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/cost/all_reduce.h"
#include "dapple/cost/stage.h"
#include "dapple/cost/transfer.h"

namespace dapple {

/// Reducing gradients to which several stages add, over all of their devices.
struct TiedCost {
  std::vector<StageIndex> stages;
  std::vector<DeviceIndex> devices;  // of all these stages, each once, ascending
  AllReduceCost reduction;
};

/// Transfers over the boundary behind a stage: of micro-batch m, entry m modulo the size (one entry
/// unless replicas are dealt micro-batches).
struct BoundaryCost {
  std::vector<TransferCost> forward;   // activations, to the next stage
  std::vector<TransferCost> backward;  // gradients, back
};

struct PlanCost {
  std::vector<StageCost> stages;
  std::vector<BoundaryCost> boundaries;  // one less than stages
  std::vector<TiedCost> ties;            // by the plan's tied gradients
  Factor overlap_slowdown = kOne;
};

}  // namespace dapple
