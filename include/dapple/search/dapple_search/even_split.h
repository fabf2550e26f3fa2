// Layers cut into a given number of stages, by time alone.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/profile/model_profile.h"

namespace dapple::search {

/// Stages that each end as soon as the layers up to there take their even part of the time, forward
/// and backward together, and never take the last layers that the stages behind need to have one
/// each. O(layers). Requires: 1 <= stages <= layers.
std::vector<LayerRange> even_split(const LayerTable& table, std::int32_t layers,
                                   std::int32_t stages);

/// Stages of which the slowest is as fast as it can be. Among such splits, the last stage holds as
/// many layers as it can, and the stages before it are split in the same way, so that their slowest
/// is as fast as it can be too. This holds where all stages take equally long for equal layers;
/// elsewhere a stage that must have a layer may be slower. `time_of(stage, layers)` is 0 for no
/// layers and must not fall as layers are added at either end. O(d * stages * log layers * log
/// time) for d different slowest stages along the way, which are at most as many as stages. Method:
/// bisection with bounds that are realised (Pinar and Aykanat 2004, "Fast optimal load balancing
/// algorithms for 1D partitioning"). Requires: 1 <= stages <= layers.
std::vector<LayerRange> balanced_split(
    std::int32_t layers, std::int32_t stages,
    const std::function<Duration(std::int32_t stage, LayerRange layers)>& time_of);

}  // namespace dapple::search
