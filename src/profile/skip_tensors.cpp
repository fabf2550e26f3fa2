#include "dapple/profile/skip_tensors.h"

#include <algorithm>

#include "dapple/core/error.h"

namespace dapple {

std::string_view to_string(SkipTensors skip_tensors) {
  switch (skip_tensors) {
    case SkipTensors::Forwarded:
      return "forwarded";
    case SkipTensors::Direct:
      return "direct";
  }
  throw Bug("a way of skip tensors without a name");
}

bool may_skip_stages(const ModelProfile& profile) {
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    for (const LayerIndex input : profile.layers[l].inputs) {
      if (input.position() + 1 != l) return true;
    }
  }
  return false;
}

std::vector<LayerIndex> layers_consumed(const ModelProfile& profile, LayerRange from,
                                        LayerRange to) {
  std::vector<LayerIndex> consumed;
  for (std::int32_t l = to.begin; l < to.end; ++l) {
    for (const LayerIndex input : profile.layers[static_cast<std::size_t>(l)].inputs) {
      if (input.value >= from.begin && input.value < from.end) consumed.push_back(input);
    }
  }
  std::sort(consumed.begin(), consumed.end());
  consumed.erase(std::unique(consumed.begin(), consumed.end()), consumed.end());
  return consumed;
}

}  // namespace dapple
