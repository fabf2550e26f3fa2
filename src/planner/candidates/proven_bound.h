// What a plan's prediction says of plans that were not found.
#pragma once

#include <algorithm>
#include <optional>

#include "dapple/planner/request/planner.h"

namespace dapple::planner {

/// No plan is below `bound`, nor, as far as is known, below its own iteration; nothing is said
/// where nothing was proven.
inline void set_proven_bound(Prediction& prediction, std::optional<Duration> bound) {
  prediction.lower_bound.reset();
  prediction.optimality_gap.reset();
  if (!bound) return;
  prediction.lower_bound = std::min(*bound, prediction.iteration);
  prediction.optimality_gap = optimality_gap(prediction.iteration, *prediction.lower_bound);
}

}  // namespace dapple::planner
