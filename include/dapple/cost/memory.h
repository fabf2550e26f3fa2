// The memory that a plan needs on one device, by purpose.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/profile/model_profile.h"

namespace dapple {

struct PlanCost;

/// The memory of one stage on one device, by purpose.
struct MemoryCost {
  Bytes weights;
  Bytes gradients;
  /// What the framework keeps besides for the parameters.
  Bytes framework;
  Bytes optimizer_state;
  Bytes communication_buffers;
  /// The largest workspace of any layer.
  Bytes workspace;
  /// The stash of one micro-batch in flight; with recomputation, the stage's input.
  Bytes per_micro_batch;
  /// With recomputation, the stash of the one micro-batch whose forward is run again.
  Bytes recompute_stash;
  /// The number of micro-batches in flight.
  std::int64_t in_flight = 0;

  /// Returns the memory that does not depend on the micro-batches in flight.
  Bytes fixed() const {
    return weights + gradients + framework + optimizer_state + communication_buffers + workspace;
  }
  Bytes peak() const { return fixed() + recompute_stash + in_flight * per_micro_batch; }
};

/// The properties of a stage and of its neighbours that determine its memory.
struct StageContext {
  LayerRange layers;
  bool recompute = false;
  /// The warm-up depth of this stage.
  std::int64_t depth = 1;
  /// The depth of the stage before it; 0 for the first stage.
  std::int64_t depth_before = 0;
  /// The depth of the stage after it; 0 for the last stage.
  std::int64_t depth_behind = 0;
  /// Whether the boundary before the stage, and the one after it, needs buffers: false where both
  /// sides are on the same devices.
  bool sends_before = true;
  bool sends_behind = true;
  /// The largest gradient bucket; 0 for one replica.
  Bytes largest_bucket = {};
  /// The number of replicas, among which the optimizer's state is sharded where it is.
  std::int64_t replicas = 1;
};

/// The sizes of the tensors of one micro-batch that a device of a stage exchanges with others.
struct StageTensors {
  /// A stage that is not a neighbour, and the size of the tensors exchanged with it.
  struct Skip {
    StageIndex stage;
    Bytes size;
    /// What the device sends of each of them.
    Bytes sent = {};
    /// Whether that stage comes before this one.
    bool is_before = false;
    /// How many micro-batches may wait for this stage, or behind it, beyond two in either
    /// direction.
    std::int64_t waiting = 0;
  };
  /// With the stage before this one, and with the one behind it.
  Bytes before;
  Bytes behind;
  /// What the device sends of each of them: all, or its share (boundary_shares()).
  Bytes sent_before = {};
  Bytes sent_behind = {};
  std::vector<Skip> skips = {};
};

/// A device on which a plan needs more memory than is available.
struct MemoryShortage {
  DeviceIndex device;
  StageIndex stage;
  Bytes needed;
  Bytes limit;
  Bytes missing() const { return needed - limit; }
};

/// Returns the devices on which the plan needs too much memory: those that miss the most first,
/// ties in the order of stages and replicas. Empty if the plan fits. O(devices log devices).
/// Requires: one stage per device; for any other schedule see simulate/device_memory.h.
std::vector<MemoryShortage> memory_shortages(const PlanCost& costs);

}  // namespace dapple
