#include "dapple/profile/variants.h"

#include <algorithm>
#include <set>
#include <utility>

#include "dapple/core/error.h"

namespace dapple {
namespace {

const LayerVariant* variant_of(const Layer& layer, const Parallelism& parallelism) {
  const auto found =
      std::find_if(layer.variants.begin(), layer.variants.end(), [&](const LayerVariant& some) {
        return some.parallelism.tensor == parallelism.tensor &&
               some.parallelism.sequence == parallelism.sequence;
      });
  return found == layer.variants.end() ? nullptr : &*found;
}

}  // namespace

std::vector<Parallelism> parallelisms_of(const ModelProfile& profile) {
  std::vector<Parallelism> common{{}};
  if (profile.layers.empty()) return common;
  for (const LayerVariant& variant : profile.layers.front().variants) {
    common.push_back(variant.parallelism);
  }
  std::sort(common.begin(), common.end());
  for (const Layer& layer : profile.layers) {
    if (common.size() == 1) break;
    std::set<Parallelism> own{{}};
    for (const LayerVariant& variant : layer.variants) own.insert(variant.parallelism);
    std::erase_if(common, [&](const Parallelism& form) { return !own.contains(form); });
  }
  return common;
}

std::string layer_without(const ModelProfile& profile, const Parallelism& parallelism) {
  if (parallelism.group_size() == 1) return "";
  for (const Layer& layer : profile.layers) {
    if (variant_of(layer, parallelism) == nullptr) return layer.name;
  }
  return "";
}

ModelProfile with_parallelism(const ModelProfile& profile, const Parallelism& parallelism,
                              const GroupRing& ring) {
  if (parallelism.group_size() == 1) return profile;
  ModelProfile shared = profile;
  shared.tensor_parallel = parallelism.tensor;
  shared.ring = ring;
  for (Layer& layer : shared.layers) {
    const LayerVariant* const found = variant_of(layer, parallelism);
    check(found != nullptr, "a layer has no variant for the parallelism of its plan");
    LayerVariant variant = *found;
    layer.parameters = variant.parameters;
    layer.fixed_overhead = variant.fixed_overhead;
    layer.measurements = std::move(variant.measurements);
    layer.forward_collectives = std::move(variant.forward_collectives);
    layer.backward_collectives = std::move(variant.backward_collectives);
    layer.variants.clear();
  }
  return shared;
}

}  // namespace dapple
