// The ratio of measured to predicted time, as reported by every command that runs a plan.
#pragma once

#include <algorithm>
#include <cstdint>

#include "dapple/core/quantity.h"

namespace dapple::exec_app {

/// Returns measured / predicted; a prediction of zero counts as one nanosecond.
inline double ratio_of(Duration measured, Duration predicted) {
  return static_cast<double>(measured.ns) /
         static_cast<double>(std::max<std::int64_t>(1, predicted.ns));
}

}  // namespace dapple::exec_app
