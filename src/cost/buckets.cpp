#include "dapple/cost/buckets.h"

#include <algorithm>

#include "dapple/profile/variants.h"

namespace dapple {
namespace {

/// Fills buckets from the last layer to the first; bucket k is closed as soon as is_full(k, size)
/// is true of its size.
template <class IsFull>
GradientBuckets fill_buckets(const ModelProfile& profile, LayerRange layers, IsFull is_full) {
  GradientBuckets buckets;
  bool open = false;
  for (std::int32_t layer = layers.end - 1; layer >= layers.begin; --layer) {
    const Bytes gradient = bucketed_gradient(profile, layer, layers);
    if (gradient.count == 0) continue;
    if (!open) {
      buckets.sizes.emplace_back();
      buckets.first_layer.push_back(layer);
    }
    buckets.sizes.back() += gradient;
    buckets.first_layer.back() = layer;
    open = !is_full(buckets.sizes.size() - 1, buckets.sizes.back());
  }
  return buckets;
}

}  // namespace

Bytes reduced_parameters(const ModelProfile& profile, LayerIndex index) {
  const Layer& layer = profile.layers[index.position()];
  const GroupShape& group = profile.group;
  // Divisions are slow, and most groups have no copies.
  if (group.copies.members == 1 && group.expert_copies.members == 1) return layer.parameters;
  const Bytes outside = layer.parameters - layer.expert_parameters;
  return {divide_up(outside.count, group.copies.members) +
          divide_up(layer.expert_parameters.count, group.expert_copies.members)};
}

Bytes bucketed_gradient(const ModelProfile& profile, std::int32_t layer, LayerRange layers) {
  const bool is_tied_outside = std::any_of(
      profile.ties.begin(), profile.ties.end(),
      [&](const Tie& tie) { return tie.owner.value == layer && sides_of(tie, layers).outside; });
  if (is_tied_outside) return {};
  return scale_up(reduced_parameters(profile, LayerIndex{layer}),
                  profile.optimizer.gradient_bytes_per_parameter_byte);
}

GradientBuckets gradient_buckets(const ModelProfile& profile, LayerRange layers,
                                 Bytes bucket_size) {
  return fill_buckets(profile, layers,
                      [&](std::size_t, Bytes size) { return size >= bucket_size; });
}

std::optional<GradientBuckets> match_buckets(const ModelProfile& profile, const StagePlan& stage) {
  if (stage.gradient_buckets.empty()) {
    const GradientBuckets all = gradient_buckets(profile, stage.layers);
    if (replicas_of(stage) > 1 && !all.sizes.empty()) return std::nullopt;
    return GradientBuckets{};
  }
  GradientBuckets buckets = fill_buckets(profile, stage.layers, [&](std::size_t k, Bytes size) {
    return k < stage.gradient_buckets.size() && size >= stage.gradient_buckets[k];
  });
  if (buckets.sizes != stage.gradient_buckets) return std::nullopt;
  return buckets;
}

void fill_gradient_buckets(Plan& plan, const ModelProfile& profile) {
  plan.tied_gradients = tied_gradients(profile, plan.stages);
  for (StagePlan& stage : plan.stages) {
    if (replicas_of(stage) < 2 || !stage.gradient_buckets.empty()) continue;
    stage.gradient_buckets =
        gradient_buckets(in_form(profile, stage.form), stage.layers, plan.gradients.bucket_size)
            .sizes;
  }
}

}  // namespace dapple
