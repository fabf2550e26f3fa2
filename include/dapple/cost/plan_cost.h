// The costs of a plan: those of its stages, of the transfers between them, and of its tied
// gradients. All times are durations; when each action starts is determined by the simulation.
#pragma once

#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/cost/all_reduce.h"
#include "dapple/cost/stage.h"
#include "dapple/cost/transfer.h"

namespace dapple {

/// The reduction of gradients to which several stages contribute, over all of their devices.
struct TiedCost {
  std::vector<StageIndex> stages;
  /// The devices of all these stages, distinct, in the order of the ring (docs/model.md, section
  /// 7.2).
  std::vector<DeviceIndex> devices;
  AllReduceCost reduction;
};

/// The transfers over the boundary after a stage. Micro-batch m uses entry m modulo the number of
/// entries, which is one unless a stage deals micro-batches to its replicas.
struct BoundaryCost {
  /// Activations, to the next stage.
  std::vector<TransferCost> forward;
  /// Gradients, from the next stage.
  std::vector<TransferCost> backward;
};

/// The transfers of tensors that one stage makes and another one, further on than the next,
/// consumes, where these are sent directly.
struct SkipCost {
  StageIndex from;
  StageIndex to;
  BoundaryCost transfers;
};

struct PlanCost {
  std::vector<StageCost> stages;
  /// One less than stages.
  std::vector<BoundaryCost> boundaries;
  /// In the order of the plan's tied gradients.
  std::vector<TiedCost> ties;
  Factor overlap_slowdown = kOne;
  /// By the stage that consumes them, then by the one that makes them; empty where tensors that
  /// skip stages are forwarded.
  std::vector<SkipCost> skips = {};
};

/// Whether collectives within passes of some stage pass NICs. O(replicas).
bool has_traffic(const PlanCost& costs);

}  // namespace dapple
