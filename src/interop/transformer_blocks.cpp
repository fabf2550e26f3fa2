#include "transformer_blocks.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

namespace dapple {
namespace {

/// A layer's name such as "encoder.12".
struct NumberedName {
  std::string_view prefix;
  std::int64_t number = 0;
};

std::optional<NumberedName> numbered_name(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  NumberedName result{.prefix = name.substr(0, dot)};
  const char* end = name.data() + name.size();
  const auto [stop, fault] = std::from_chars(name.data() + dot + 1, end, result.number);
  if (fault != std::errc{} || stop != end) return std::nullopt;
  return result;
}

}  // namespace

LayerRange find_blocks(const ModelProfile& profile) {
  LayerRange longest;
  LayerRange run;
  std::optional<NumberedName> last;
  const auto count = static_cast<std::int32_t>(profile.layers.size());
  for (std::int32_t l = 0; l < count; ++l) {
    const auto name = numbered_name(profile.layers[static_cast<std::size_t>(l)].name);
    const bool goes_on =
        name && last && name->prefix == last->prefix && name->number == last->number + 1;
    run = {goes_on ? run.begin : l, l + 1};
    if (goes_on && run.size() > longest.size()) longest = run;
    last = name;
  }
  return longest;
}

std::int32_t blocks_in(LayerRange layers, LayerRange blocks) {
  return std::max(0, std::min(layers.end, blocks.end) - std::max(layers.begin, blocks.begin));
}

}  // namespace dapple
