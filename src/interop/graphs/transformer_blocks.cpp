#include "interop/graphs/transformer_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>

#include "dapple/core/characters.h"

namespace dapple::interop {
namespace {

/// Layers whose names differ only in a number.
struct Family {
  std::vector<std::int32_t> layers;  // ascending
  bool has_parameters = false;
};

/// Returns "encoder" for "encoder.12", or an empty text for names without a number.
std::string_view numbered_stem(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || dot + 1 == name.size()) return {};
  const bool is_number = name.find_first_not_of("0123456789", dot + 1) == std::string_view::npos;
  return is_number ? name.substr(0, dot) : std::string_view{};
}

const Layer& layer_of(const ModelProfile& profile, std::int32_t layer) {
  return profile.layers[static_cast<std::size_t>(layer)];
}

/// Returns the families of two or more layers, some of them with parameters, by the common part of
/// their names.
std::map<std::string_view, Family> families_of(const ModelProfile& profile) {
  std::map<std::string_view, Family> families;
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    const std::string_view stem = numbered_stem(profile.layers[l].name);
    if (stem.empty()) continue;
    Family& family = families[stem];
    family.layers.push_back(static_cast<std::int32_t>(l));
    family.has_parameters = family.has_parameters || profile.layers[l].parameters.count > 0;
  }
  std::erase_if(families, [](const auto& entry) {
    return entry.second.layers.size() < 2 || !entry.second.has_parameters;
  });
  return families;
}

/// Returns the parameter size that more than half of the layers have, or nothing if there is none.
std::optional<Bytes> usual_parameters(const ModelProfile& profile, const Family& family) {
  std::vector<Bytes> sizes;
  for (const std::int32_t l : family.layers) sizes.push_back(layer_of(profile, l).parameters);
  std::sort(sizes.begin(), sizes.end());
  const Bytes middle = sizes[sizes.size() / 2];
  const auto [first, last] = std::equal_range(sizes.begin(), sizes.end(), middle);
  if (2 * (last - first) <= static_cast<std::ptrdiff_t>(sizes.size())) return std::nullopt;
  return middle;
}

/// Removes from the blocks a first or last layer of the model whose parameter size makes it the
/// embedding or the head.
void set_apart(const ModelProfile& profile, const Family& family, TransformerBlocks& blocks) {
  const std::optional<Bytes> usual = usual_parameters(profile, family);
  if (!usual) return;
  const auto count = static_cast<std::int32_t>(profile.layers.size());
  LayerRange& layers = blocks.layers;
  if (layers.begin == 0 && layer_of(profile, 0).parameters != *usual) {
    blocks.apart.push_back(LayerIndex{layers.begin++});
  }
  if (layers.end == count && layer_of(profile, count - 1).parameters != *usual) {
    blocks.apart.push_back(LayerIndex{--layers.end});
  }
}

}  // namespace

TransformerBlocks find_blocks(const ModelProfile& profile) {
  const std::map<std::string_view, Family> families = families_of(profile);
  if (families.empty()) {
    return {.layers = {},
            .fault =
                "expected transformer blocks, layers numbered under one name as encoder.0, "
                "encoder.1, got none"};
  }
  const auto& [stem, family] = *families.begin();
  if (families.size() > 1) {
    return {.layers = {},
            .fault = fmt::format("expected transformer blocks, numbered under one name, got two "
                                 "names of numbered layers, {} and {}",
                                 printable(stem), printable(std::next(families.begin())->first))};
  }
  TransformerBlocks blocks{.layers = {family.layers.front(), family.layers.back() + 1}};
  for (std::size_t i = 1; i < family.layers.size(); ++i) {
    const std::int32_t between = family.layers[i - 1] + 1;
    if (family.layers[i] == between) continue;
    return {.layers = {},
            .fault = fmt::format("expected transformer blocks side by side, got {} between {} and "
                                 "{}",
                                 printable(layer_of(profile, between).name),
                                 printable(layer_of(profile, between - 1).name),
                                 printable(layer_of(profile, family.layers[i]).name))};
  }
  set_apart(profile, family, blocks);
  return blocks;
}

std::int32_t blocks_in(LayerRange layers, LayerRange blocks) {
  return std::max(0, std::min(layers.end, blocks.end) - std::max(layers.begin, blocks.begin));
}

}  // namespace dapple::interop
