// The transformer blocks of a model, for runtimes that count nothing else: what stands before them
// is one embedding there, what stands behind them one head.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dapple/profile/model_profile.h"

namespace dapple::interop {

struct TransformerBlocks {
  LayerRange layers;                   // empty where they cannot be told
  std::string fault = {};              // then: "expected ..., got ..."
  std::vector<LayerIndex> apart = {};  // first or last layer of the model: called as blocks are
};

/// Layers whose names differ in a number alone, as encoder.0 and encoder.3, whatever the numbers:
/// two or more, side by side. There must be no other such layers with parameters, as a second kind
/// of blocks would be. A first or last layer of the model that is called so and has not the
/// parameters that most of them have is the embedding or the head (layer.0 in files that number all
/// layers). O(layers log layers).
TransformerBlocks find_blocks(const ModelProfile& profile);

/// How many of a stage's layers are blocks.
std::int32_t blocks_in(LayerRange layers, LayerRange blocks);

}  // namespace dapple::interop
