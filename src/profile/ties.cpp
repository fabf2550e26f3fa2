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
    if (std::binary_search(tie.users.begin(), tie.users.end(), layer)) return tie.owner;
  }
  return std::nullopt;
}

TieSides sides_of(const Tie& tie, LayerRange layers) {
  const bool owner_inside = contains(layers, tie.owner);
  TieSides sides{.inside = owner_inside, .outside = !owner_inside};
  for (const LayerIndex user : tie.users) {
    (contains(layers, user) ? sides.inside : sides.outside) = true;
  }
  return sides;
}

}  // namespace dapple
