// Where an activation or a gradient is on its way between two stages.
#pragma once

#include <compare>
#include <cstdint>

#include "dapple/core/index.h"

namespace dapple::exec {

enum class Direction : std::uint8_t { Forward, Backward };

/// Identifies an activation or gradient by the stage that takes it in, if it is arriving, or that
/// made it, if it is leaving.
struct FragmentPlace {
  Direction direction;
  StageIndex stage;
  std::int32_t micro_batch;
  friend auto operator<=>(const FragmentPlace&, const FragmentPlace&) = default;
};

}  // namespace dapple::exec
