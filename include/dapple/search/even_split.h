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

/// Stages of which the slowest is as fast as it can be, where all stages take equally long for
/// equal layers; elsewhere a stage that must have a layer may keep a better cut from being found.
/// `time_of(stage, layers)` must not fall as layers are added at either end. Ties keep the cut at
/// which the layers before it take less.
/// O(stages^2 * log^2 layers). Requires: 1 <= stages <= layers.
std::vector<LayerRange> balanced_split(
    std::int32_t layers, std::int32_t stages,
    const std::function<Duration(std::int32_t stage, LayerRange layers)>& time_of);

}  // namespace dapple
