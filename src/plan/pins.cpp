#include "dapple/plan/pins.h"

#include <algorithm>

namespace dapple {

bool Pins::allow(LayerRange layers, std::int64_t stage_replicas, bool stage_recompute) const {
  if (replicas && *replicas != stage_replicas) return false;
  if (recompute && *recompute != stage_recompute) return false;
  const auto cut = std::upper_bound(cuts.begin(), cuts.end(), layers.begin);
  const bool is_cut = cut != cuts.end() && *cut < layers.end;
  const auto is_joint = [&](std::int32_t layer) {
    return std::binary_search(joints.begin(), joints.end(), layer);
  };
  return !is_cut && !is_joint(layers.begin) && !is_joint(layers.end);
}

bool Pins::allow_boundaries(const std::vector<std::int32_t>& boundaries) const {
  const auto is_boundary = [&](std::int32_t layer) {
    return std::binary_search(boundaries.begin(), boundaries.end(), layer);
  };
  return std::all_of(cuts.begin(), cuts.end(), is_boundary) &&
         std::none_of(joints.begin(), joints.end(), is_boundary);
}

std::vector<std::string> to_texts(const Pins& pins, const ModelProfile& profile) {
  std::vector<std::string> texts;
  if (pins.stages) texts.push_back("stages=" + std::to_string(*pins.stages));
  if (pins.replicas) texts.push_back("replicas=" + std::to_string(*pins.replicas));
  if (pins.tensor) texts.push_back("tensor=" + std::to_string(*pins.tensor));
  if (pins.context) texts.push_back("context=" + std::to_string(*pins.context));
  if (pins.experts) texts.push_back("experts=" + std::to_string(*pins.experts));
  if (pins.expert_tensor) {
    texts.push_back("expert-tensor=" + std::to_string(*pins.expert_tensor));
  }
  if (pins.shards) texts.push_back("shards=" + std::to_string(*pins.shards));
  if (pins.recomputation) {
    const std::string parts = to_text(*pins.recomputation);
    texts.push_back("recompute=" + (parts.empty() ? "none" : parts));
  }
  if (pins.recompute) texts.push_back(*pins.recompute ? "recompute=on" : "recompute=off");
  const auto name = [&](std::int32_t layer) {
    return profile.layers[static_cast<std::size_t>(layer)].name;
  };
  if (pins.least_depths) texts.emplace_back("depths=least");
  for (const std::int32_t cut : pins.cuts) texts.push_back("cut=" + name(cut));
  for (const std::int32_t joint : pins.joints) texts.push_back("join=" + name(joint));
  return texts;
}

}  // namespace dapple
