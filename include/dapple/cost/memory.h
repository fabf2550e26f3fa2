// Memory of one device, by what it is for, communication buffers included.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/profile/model_profile.h"

namespace dapple {

struct PlanCost;

/// Memory of one device, by what it is for.
struct MemoryCost {
  Bytes weights;
  Bytes gradients;
  Bytes optimizer_state;
  Bytes communication_buffers;
  Bytes workspace;        // of the neediest layer
  Bytes per_micro_batch;  // stash of one micro-batch in flight (stage input, if recomputed)
  Bytes recompute_stash;  // of the one micro-batch whose forward is run again
  std::int64_t in_flight = 0;

  Bytes fixed() const {
    return weights + gradients + optimizer_state + communication_buffers + workspace;
  }
  Bytes peak() const { return fixed() + recompute_stash + in_flight * per_micro_batch; }
};

/// Time and memory of one stage beside its neighbours' depths.
struct StageContext {
  LayerRange layers;
  bool recompute = false;
  std::int64_t depth = 1;         // of this stage
  std::int64_t depth_before = 0;  // of the stage before it; 0 for the first
  std::int64_t depth_behind = 0;  // of the stage behind it; 0 for the last
  bool sends_before = true;       // over the boundary before it: false where both sides are on the
  bool sends_behind = true;       // same devices, which need no buffers
  Bytes largest_bucket = {};      // of its gradients; 0 for one replica
};

/// A device on which a plan needs more memory than there is.
struct MemoryShortage {
  DeviceIndex device;
  StageIndex stage;
  Bytes needed;
  Bytes limit;
  Bytes missing() const { return needed - limit; }
};

/// Worst first; ties in the order of stages and replicas. Empty if the plan fits. O(devices).
/// Requires: one stage per device; simulate/device_memory.h has the question for any schedule.
std::vector<MemoryShortage> memory_shortages(const PlanCost& costs);

}  // namespace dapple
