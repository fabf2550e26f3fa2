// The least warm-up depth that keeps a stage busy.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "dapple/core/index.h"

namespace dapple {

/// Returns policy A of DAPPLE (PPoPP'21) section 3.2: one micro-batch in flight for each stage from
/// `stage` to the last of `stages`, S - s at stage s of S, and at most `most`.
/// Requires: stage < stages.
constexpr std::int64_t least_depth(StageIndex stage, std::size_t stages, std::int64_t most) {
  return std::min(static_cast<std::int64_t>(stages) - stage.value, most);
}

}  // namespace dapple
