#include "interop/graphs/torchtitan_modules.h"

#include <fmt/format.h>

#include <cstddef>

namespace dapple::interop {
namespace {

/// Whether the layers are those of a decoder that was estimated; measured profiles state no
/// precision, and their layers of these names may be any.
bool is_estimated_decoder(const ModelProfile& profile) {
  const std::vector<Layer>& layers = profile.layers;
  if (profile.precision.empty() || layers.size() < 3) return false;
  if (layers.front().name != "embedding" || layers.back().name != "head") return false;
  for (std::size_t l = 1; l + 1 < layers.size(); ++l) {
    if (layers[l].name != fmt::format("block.{}", l - 1)) return false;
  }
  return true;
}

}  // namespace

TorchtitanModules::TorchtitanModules(const ModelProfile& profile)
    : profile_(profile), are_those_of_decoders_(is_estimated_decoder(profile)) {
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    const LayerIndex layer = index_at<LayerIndex>(l);
    layers_.emplace(profile.layers[l].name, layer);
    layers_.emplace(names(layer).front(), layer);
  }
}

std::vector<std::string> TorchtitanModules::names(LayerIndex layer) const {
  const std::size_t position = layer.position();
  if (!are_those_of_decoders_) return {profile_.layers[position].name};
  if (position == 0) return {"tok_embeddings"};
  if (position + 1 == profile_.layers.size()) return {"norm", "output"};
  return {fmt::format("layers.{}", position - 1)};
}

std::optional<LayerIndex> TorchtitanModules::layer(std::string_view name) const {
  const auto found = layers_.find(name);
  if (found == layers_.end()) return std::nullopt;
  return found->second;
}

}  // namespace dapple::interop
