#include "dapple/search/pins.h"

#include <algorithm>

namespace dapple {

bool Pins::allow(LayerRange layers, std::int64_t stage_replicas, bool stage_recompute) const {
  if (replicas && *replicas != stage_replicas) return false;
  if (recompute && *recompute != stage_recompute) return false;
  const bool is_cut = std::any_of(cuts.begin(), cuts.end(), [&](std::int32_t cut) {
    return layers.begin < cut && cut < layers.end;
  });
  const bool is_torn = std::any_of(joints.begin(), joints.end(), [&](std::int32_t joint) {
    return joint == layers.begin || joint == layers.end;
  });
  return !is_cut && !is_torn;
}

std::vector<std::string> to_texts(const Pins& pins, const ModelProfile& profile) {
  std::vector<std::string> texts;
  if (pins.stages) texts.push_back("stages=" + std::to_string(*pins.stages));
  if (pins.replicas) texts.push_back("replicas=" + std::to_string(*pins.replicas));
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
