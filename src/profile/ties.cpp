#include <algorithm>

#include "dapple/profile/model_profile.h"

namespace dapple {
namespace {

bool contains(LayerRange layers, LayerIndex layer) {
  return layers.begin <= layer.value && layer.value < layers.end;
}

}  // namespace

std::optional<LayerIndex> tied_to(const ModelProfile& profile, LayerIndex layer) {
  for (const Tie& tie : profile.ties) {
    if (std::binary_search(tie.users.begin(), tie.users.end(), layer)) return tie.holder;
  }
  return std::nullopt;
}

TieSides sides_of(const Tie& tie, LayerRange layers) {
  const bool holder_inside = contains(layers, tie.holder);
  TieSides sides{.inside = holder_inside, .outside = !holder_inside};
  for (const LayerIndex user : tie.users) {
    (contains(layers, user) ? sides.inside : sides.outside) = true;
  }
  return sides;
}

}  // namespace dapple
