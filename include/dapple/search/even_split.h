// Layers cut into a given number of stages, by time alone.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/profile/model_profile.h"

namespace dapple {

/// Stages that each end as soon as the layers up to there take their even part of the time, forward
/// and backward together, and never take the last layers that the stages behind need to have one
/// each. O(layers). Requires: 1 <= stages <= layers.
std::vector<LayerRange> even_split(const LayerTable& table, std::int32_t layers,
                                   std::int32_t stages);

/// Stages of which the slowest is as fast as it can be. `time_of(stage, layers)` must not fall as
/// layers are added at either end. Ties keep the cut at which the layers before it take less.
/// O(stages * layers * log layers). Requires: 1 <= stages <= layers.
std::vector<LayerRange> balanced_split(
    std::int32_t layers, std::int32_t stages,
    const std::function<Duration(std::int32_t stage, LayerRange layers)>& time_of);

}  // namespace dapple
