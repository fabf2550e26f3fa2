// Tensors that skip stages: those that a stage makes and a stage further on than the next one
// consumes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/profile/model_profile.h"

namespace dapple {

/// Returns "forwarded" or "direct".
std::string_view to_string(SkipTensors skip_tensors);

/// Whether some layer consumes the output of a layer other than the one before it, so that there
/// are plans with tensors that skip stages. O(inputs).
bool may_skip_stages(const ModelProfile& profile);

/// Returns the layers in `from`, ascending, whose outputs layers in `to` consume.
/// O(inputs of the layers in `to`, times the logarithm of their number).
std::vector<LayerIndex> layers_consumed(const ModelProfile& profile, LayerRange from,
                                        LayerRange to);

}  // namespace dapple
