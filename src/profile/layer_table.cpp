#include <algorithm>
#include <bit>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/profile/model_profile.h"

namespace dapple {
namespace {

/// Per layer the last layer that consumes its output, or the layer itself if none does.
std::vector<std::size_t> last_consumers(const std::vector<Layer>& layers) {
  std::vector<std::size_t> last(layers.size());
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    last[layer] = layer;
    for (const LayerIndex input : layers[layer].inputs) {
      check(input.value >= 0 && input.position() < layer, "a layer's input does not precede it");
      last[input.position()] = layer;
    }
  }
  return last;
}

/// A tensor of layer l lies on the cuts l + 1 ... last consumer: it comes in at the first of them
/// and is gone behind the last.
std::vector<Bytes> boundaries(const std::vector<Layer>& layers, std::int64_t samples) {
  std::vector<Bytes> change(layers.size() + 2);
  const std::vector<std::size_t> last = last_consumers(layers);
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    const Bytes output = output_size(layers[layer], samples);
    change[layer + 1] += output;
    change[last[layer] + 1] -= output;
  }
  std::vector<Bytes> sizes;
  Bytes alive;
  for (std::size_t cut = 0; cut <= layers.size(); ++cut) {
    alive += change[cut];
    sizes.push_back(alive);
  }
  return sizes;
}

}  // namespace

LayerTable::LayerTable(const ModelProfile& profile, std::int64_t samples, Factor time_scale)
    : forward_(1),
      backward_(1),
      input_gradient_(1),
      stash_(1),
      boundary_(boundaries(profile.layers, samples)) {
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    const Layer& layer = profile.layers[l];
    const std::optional<BatchScaling> scaling = profile.batch_scaling;
    forward_.push_back(forward_.back() + forward_time(layer, samples, scaling, time_scale));
    backward_.push_back(backward_.back() + backward_time(layer, samples, scaling, time_scale));
    input_gradient_.push_back(input_gradient_.back() + input_gradient_time(profile,
                                                                           index_at<LayerIndex>(l),
                                                                           samples, time_scale));
    stash_.push_back(stash_.back() + stash_size(layer, samples));
  }
  const bool has_workspaces =
      std::any_of(profile.layers.begin(), profile.layers.end(),
                  [&](const Layer& layer) { return workspace_size(layer, samples).count > 0; });
  if (!has_workspaces) return;
  workspace_.emplace_back();
  for (const Layer& layer : profile.layers) {
    workspace_.back().push_back(workspace_size(layer, samples));
  }
  for (std::size_t span = 1; 2 * span <= profile.layers.size(); span *= 2) {
    const std::vector<Bytes>& half = workspace_.back();
    std::vector<Bytes> whole;
    for (std::size_t layer = 0; layer + span < half.size(); ++layer) {
      whole.push_back(std::max(half[layer], half[layer + span]));
    }
    workspace_.push_back(std::move(whole));
  }
}

Bytes LayerTable::largest_workspace(LayerRange layers) const {
  if (layers.size() <= 0 || workspace_.empty()) return {};
  // Two spans that overlap cover the range.
  const auto size = static_cast<std::uint32_t>(layers.size());
  const auto level = static_cast<std::size_t>(std::bit_width(size) - 1);
  const std::vector<Bytes>& spans = workspace_[level];
  const auto last = static_cast<std::size_t>(layers.end) - (std::size_t{1} << level);
  return std::max(spans[static_cast<std::size_t>(layers.begin)], spans[last]);
}

}  // namespace dapple
