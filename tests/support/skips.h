// Tensors that skip layers, and so may skip stages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dapple/profile/model_profile.h"
#include "dice.h"

namespace dapple::small {

/// Lets layers consume more earlier ones at random, and some of them not the one right before.
inline void add_skips(Dice& dice, ModelProfile& profile) {
  for (std::size_t l = 2; l < profile.layers.size(); ++l) {
    std::vector<LayerIndex>& inputs = profile.layers[l].inputs;
    for (std::int64_t more = dice.roll(0, 2); more > 0; --more) {
      inputs.push_back({static_cast<std::int32_t>(dice.roll(0, static_cast<std::int64_t>(l) - 2))});
    }
    std::sort(inputs.begin(), inputs.end());
    inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
    if (inputs.size() > 1 && dice.chance(30)) inputs.pop_back();
  }
}

}  // namespace dapple::small
