// The form of parallelism that a foreign plan states, which decides of which devices the groups are
// that it is imported for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dapple/interop/plans/foreign_plan.h"
#include "dapple/interop/plans/layout.h"
#include "dapple/profile/parallelism.h"

namespace dapple::interop {

struct StatedParallelism {
  /// The tensor-parallel degree, if it is stated.
  std::optional<std::int64_t> tensor;
  /// Whether there is sequence parallelism, if that is stated.
  std::optional<bool> sequence;
  /// The context-parallel and the expert-parallel degree, and the tensor-parallel degree of experts
  /// if it is stated.
  std::int64_t context = 1;
  std::int64_t experts = 1;
  std::optional<std::int64_t> expert_tensor = {};
  /// Whether the optimizer's state is sharded (ZeRO stage 1), and over how many ranks; 0 for all.
  bool shards_optimizer = false;
  std::int64_t optimizer_shards = 0;
  /// The parts of layers that are recomputed, in all layers or in some of every stage.
  Recomputation recomputation = {};
  /// The number of devices over which all state is sharded (ZeRO stage 3).
  std::int64_t full_shards = 1;
};

/// Returns what a layout says by "tp", "sp", "cp", "ep", "etp", "zero", "fsdp" and "recompute".
/// Throws Error(BadInput) for values that are neither a number nor on or off, for other stages of
/// ZeRO than 0, 1 and 3, and for stage 3 where it is not said over how many devices. O(length).
StatedParallelism stated_in_layout(const Layout& layout);

/// Returns what the files of one format say or, where they do not, the option for it. Megatron-LM's
/// instances of the distributed optimizer divide the ranks in the files' comments or, if there are
/// none, the GPUs of the options' devices or of `devices`, of which each has as many as the
/// profile's tensor-parallel degree. Throws Error(BadInput) for degrees that are no numbers, and
/// for instances that do not divide the ranks. O(length).
StatedParallelism stated_in(const std::vector<ForeignPlanFile>& files,
                            const ForeignPlanOptions& options, const ModelProfile& profile,
                            std::int64_t devices);

/// Returns the form that is stated, among those that all layers have variants for; without sequence
/// parallelism where both forms of a degree exist and none is stated. Where layers have no variant
/// that recomputes what is stated, the form recomputes nothing. For a profile without
/// variants the result is no parallelism. Throws Error(BadInput) naming `source` and `place` if
/// layers have no such variants, or if the groups of these degrees are no parts of each other.
/// O(layers * variants).
Parallelism find_parallelism(const StatedParallelism& stated, const ModelProfile& profile,
                             const std::string& source, const std::string& place = "");

}  // namespace dapple::interop
