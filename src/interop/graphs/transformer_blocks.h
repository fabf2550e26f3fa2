// Finds the transformer blocks of a model, for runtimes that count only these: they treat all
// layers before the blocks as one embedding and all layers after them as one head.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dapple/profile/model_profile.h"

namespace dapple::interop {

struct TransformerBlocks {
  // The blocks; empty if they cannot be identified.
  LayerRange layers;
  // Why the blocks cannot be identified, "expected ..., got ..."; empty if they can.
  std::string fault = {};
  // The first or last layer of the model, if it is named like a block but is none.
  std::vector<LayerIndex> apart = {};
};

/// Finds the transformer blocks: two or more consecutive layers whose names differ only in a
/// number, such as encoder.0 and encoder.3, whatever the numbers. There must be no second such set
/// of layers with parameters. A first or last layer of the model that is named like the blocks but
/// whose parameters differ in size from those of the majority is the embedding or the head (layer.0
/// in files that number all layers). O(layers log layers).
TransformerBlocks find_blocks(const ModelProfile& profile);

/// Returns how many of a stage's layers are blocks.
std::int32_t blocks_in(LayerRange layers, LayerRange blocks);

}  // namespace dapple::interop
