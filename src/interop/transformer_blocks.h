// The transformer blocks of a model, for runtimes that count nothing else.
#pragma once

#include <cstdint>

#include "dapple/profile/model_profile.h"

namespace dapple {

/// The longest run of two layers or more that are numbered one after another under one name, as
/// encoder.0, encoder.1. Empty without any. O(layers).
LayerRange find_blocks(const ModelProfile& profile);

/// How many of a stage's layers are blocks.
std::int32_t blocks_in(LayerRange layers, LayerRange blocks);

}  // namespace dapple
