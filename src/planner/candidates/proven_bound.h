// Records a proven lower bound in a plan's prediction.
#pragma once

#include <algorithm>
#include <optional>

#include "dapple/planner/request/planner.h"

namespace dapple::planner {

/// Sets the prediction's lower bound to the smaller of `bound` and its own iteration, and sets the
/// optimality gap; clears both where nothing was proven.
inline void set_proven_bound(Prediction& prediction, std::optional<Duration> bound) {
  prediction.lower_bound.reset();
  prediction.optimality_gap.reset();
  if (!bound) return;
  prediction.lower_bound = std::min(*bound, prediction.iteration);
  prediction.optimality_gap = optimality_gap(prediction.iteration, *prediction.lower_bound);
}

}  // namespace dapple::planner
