// The restriction of a plan to what a target runtime can express.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dapple/plan/record_text.h"
#include "dapple/plan/schedule_family.h"
#include "dapple/profile/context_exchanges.h"
#include "dapple/profile/model_profile.h"
#include "dapple/profile/parallelism.h"
#include "dapple/profile/recomputation.h"

namespace dapple::planner {

/// What a target runtime can express.
struct PlanRestriction {
  /// The target as it was requested, such as "megatron".
  std::string target = {};
  /// The name of the runtime for the plan's record, such as "Megatron-LM".
  std::string runtime;
  /// Whether 1F1B runs only at the least depths that keep all stages busy.
  bool least_depths = false;
  /// Whether the runtime can recompute; if not, no stage does.
  bool recomputes = true;
  /// The parts of every layer that it can recompute instead.
  RecomputedParts recomputed_parts = {};
  /// Whether it can do so in some layers of every stage only, where these are whole layers.
  SelectableLayers recomputed_layers = {};
  /// Whether a device may be a group with tensor parallelism, and with sequence parallelism.
  bool tensor_parallel = true;
  bool sequence_parallel = true;
  /// How its context-parallel ranks may exchange keys and values; in no way if it has none.
  ContextExchanges context_exchanges = {.all_gather = true, .ring = true, .all_to_all = true};
  /// Whether a stage may also be a group with expert parallelism.
  bool expert_parallel = true;
  /// Whether experts beside tensor parallelism need sequence parallelism.
  bool experts_need_sequence = false;
  /// Whether context parallelism shards state over its ranks, all of it or the optimizer's.
  bool context_shards_state = false;
  /// Whether replicas may shard the optimizer's state, and devices of a group all state.
  bool shards_optimizer = true;
  /// Whether it may be sharded over fewer than all ranks that hold the same parameters.
  bool shards_optimizer_in_groups = true;
  bool shards_all_state = true;
  /// Whether devices are assigned by number, from the first stage on.
  bool in_order = false;
  /// Layers that begin no stage, in addition to those pinned.
  std::vector<std::int32_t> joints = {};
  /// Returns the layers that begin the stages, the first one left out, of a model that the runtime
  /// cuts into so many itself; nothing if it cannot. Null if plans choose where stages begin.
  std::optional<std::vector<std::int32_t>> (*own_boundaries)(const ModelProfile& profile,
                                                             std::int64_t stages) = nullptr;
  /// Whether such a runtime has 1F1B on so many stages only with as many micro-batches or one less.
  bool needs_filled_pipeline = false;
  /// The schedule families that the runtime can run, 1F1B first; they are searched where the
  /// options ask for every family.
  std::vector<ScheduleFamily> families = {ScheduleFamily::OneFOneB};
};

/// Returns the restriction for plans of one form of parallelism: where parts of every layer are
/// recomputed, no stage is as a whole besides.
inline std::optional<PlanRestriction> restriction_for(std::optional<PlanRestriction> restriction,
                                                      const Parallelism& form) {
  if (restriction && !form.recomputes.none()) restriction->recomputes = false;
  return restriction;
}

/// Returns what the runtime cannot express, for the record. `only_least_depths` says whether other
/// depths count among it.
inline InexpressibleParts inexpressible_parts(const PlanRestriction& restriction,
                                              bool only_least_depths) {
  return {.runtime = restriction.runtime,
          .other_orders_of_devices = restriction.in_order,
          .other_depths = only_least_depths,
          .some_boundaries = !restriction.joints.empty() || restriction.own_boundaries != nullptr};
}

}  // namespace dapple::planner
