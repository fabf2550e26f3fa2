// Splits of the layers into a given number of stages, by computation time alone.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/profile/layer_table.h"

namespace dapple::search {

/// Splits the layers evenly: stage s of S ends at the first layer up to which the layers take
/// (s + 1) / S of the time, forward and backward together, but leaves at least one layer to each
/// stage behind it. O(layers).
/// Requires: 1 <= stages <= layers.
std::vector<LayerRange> even_split(const LayerTable& table, std::int32_t layers,
                                   std::int32_t stages);

/// Splits the layers so that the slowest stage is as fast as possible. Among such splits the last
/// stage holds as many layers as it can, and the stages in front of it are split in the same way,
/// so that their slowest stage is as fast as possible too. This holds where all stages take equally
/// long for equal layers; elsewhere a stage may be slower because it must have a layer.
/// `time_of(stage, layers)` is 0 for no layers and must not fall as layers are added at either end.
/// O(d * stages * log layers * log time) for d distinct times of the slowest stage along the way,
/// where d <= stages. Method: exact bisection, in which each trial moves a bound to a time that
/// some stage takes (Pinar and Aykanat 2004, "Fast optimal load balancing algorithms for 1D
/// partitioning").
/// Requires: 1 <= stages <= layers.
std::vector<LayerRange> balanced_split(
    std::int32_t layers, std::int32_t stages,
    const std::function<Duration(std::int32_t stage, LayerRange layers)>& time_of);

}  // namespace dapple::search
