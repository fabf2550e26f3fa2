// A measured time beside the predicted one, as every command that runs a plan tells it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "dapple/core/quantity.h"

namespace dapple::exec_app {

/// Of a prediction of no time, how many nanoseconds were measured.
inline double ratio_of(Duration measured, Duration predicted) {
  return static_cast<double>(measured.ns) /
         static_cast<double>(std::max<std::int64_t>(1, predicted.ns));
}

}  // namespace dapple::exec_app
