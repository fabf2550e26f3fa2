#include "dapple/profile/recomputation.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <system_error>

#include "dapple/core/error.h"
#include "dapple/profile/limits.h"

namespace dapple {

std::string_view to_string(RecomputedPart part) {
  switch (part) {
    case RecomputedPart::CoreAttention:
      return "core_attn";
    case RecomputedPart::Norm:
      return "norm";
    case RecomputedPart::FeedForward:
      return "mlp";
    case RecomputedPart::Experts:
      return "moe";
    case RecomputedPart::ExpertActivation:
      return "moe_act";
    case RecomputedPart::Layer:
      return "full";
  }
  check(false, "a part to recompute without a name");
  return {};
}

std::string to_text(RecomputedParts parts) {
  std::string text;
  for (const RecomputedPart part : kRecomputedParts) {
    if (!parts.contains(part)) continue;
    if (!text.empty()) text += '+';
    text += to_string(part);
  }
  return text;
}

std::optional<RecomputedParts> recomputed_parts(std::string_view text) {
  RecomputedParts parts;
  while (!text.empty()) {
    const std::size_t end = text.find('+');
    const std::string_view name = text.substr(0, end);
    const auto* const found =
        std::find_if(std::begin(kRecomputedParts), std::end(kRecomputedParts),
                     [&](RecomputedPart part) { return to_string(part) == name; });
    if (found == std::end(kRecomputedParts) || parts.contains(*found)) return std::nullopt;
    parts.add(*found);
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
    if (text.empty()) return std::nullopt;
  }
  return parts;
}

std::string to_text(const Recomputation& recomputation) {
  const LayerSelection layers = recomputation.layers;
  std::string text = to_text(recomputation.parts);
  if (layers.is_all()) return text;
  text += layers.kind() == LayerSelection::Kind::First ? ":" : ":1/";
  return text + std::to_string(layers.number());
}

std::optional<Recomputation> recomputation(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::optional<RecomputedParts> parts = recomputed_parts(text.substr(0, colon));
  if (!parts || parts->none() || !parts->is_sound()) return std::nullopt;
  if (colon == std::string_view::npos) return Recomputation{*parts};
  std::string_view number = text.substr(colon + 1);
  const bool is_every = number.starts_with("1/");
  if (is_every) number.remove_prefix(2);
  std::int64_t layers = 0;
  const auto [stop, fault] = std::from_chars(number.data(), number.data() + number.size(), layers);
  const bool is_number = fault == std::errc{} && stop == number.data() + number.size();
  if (!is_number || layers < (is_every ? 2 : 1) || layers > kMaxLayers) return std::nullopt;
  return Recomputation{*parts,
                       is_every ? LayerSelection::every(layers) : LayerSelection::first(layers)};
}

}  // namespace dapple
