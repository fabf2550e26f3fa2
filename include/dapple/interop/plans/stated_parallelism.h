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
  /// Whether the optimizer's state is sharded (ZeRO stage 1).
  bool shards_optimizer = false;
};

/// Returns what a layout says by "tp", "sp" and "zero". Throws Error(BadInput) for values that are
/// neither a number nor on or off, and for other stages of ZeRO than 0 and 1. O(length).
StatedParallelism stated_in_layout(const Layout& layout);

/// Returns what the files of one format say or, where they do not, the option for it. Throws
/// Error(BadInput) for degrees that are no numbers. O(length).
StatedParallelism stated_in(const std::vector<ForeignPlanFile>& files,
                            const ForeignPlanOptions& options);

/// Returns the form that is stated, among those that all layers have variants for; without sequence
/// parallelism where both forms of a degree exist and none is stated. For a profile without
/// variants the result is no parallelism. Throws Error(BadInput) naming `source` and `place` if
/// layers have no such variants. O(layers * variants).
Parallelism find_parallelism(const StatedParallelism& stated, const ModelProfile& profile,
                             const std::string& source, const std::string& place = "");

}  // namespace dapple::interop
