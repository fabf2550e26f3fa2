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
    const std::string_view word = text.substr(0, end);
    const std::string_view name =
        word == kSelective ? to_string(RecomputedPart::CoreAttention) : word;
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

namespace {

/// A text of parts, and of layers behind a colon, if there is one.
struct SplitText {
  std::string_view parts;
  std::optional<std::string_view> number;
  bool is_every = false;

  explicit SplitText(std::string_view text) : parts(text.substr(0, text.find(':'))) {
    if (parts.size() == text.size()) return;
    number = text.substr(parts.size() + 1);
    is_every = number->starts_with("1/");
    if (is_every) number->remove_prefix(2);
  }
  /// The smallest number of layers: every first one would be all of them.
  std::int64_t least() const { return is_every ? 2 : 1; }
  std::optional<RecomputedParts> sound_parts() const {
    const std::optional<RecomputedParts> found = recomputed_parts(parts);
    return found && !found->none() && found->is_sound() ? found : std::nullopt;
  }
};

}  // namespace

std::optional<Recomputation> recomputation(std::string_view text) {
  const SplitText split(text);
  const std::optional<RecomputedParts> parts = split.sound_parts();
  if (!parts) return std::nullopt;
  if (!split.number) return Recomputation{*parts};
  const char* const end = split.number->data() + split.number->size();
  std::int64_t layers = 0;
  const auto [stop, fault] = std::from_chars(split.number->data(), end, layers);
  const bool is_number = fault == std::errc{} && stop == end;
  if (!is_number || layers < split.least() || layers > kMaxLayers) return std::nullopt;
  return Recomputation{
      *parts, split.is_every ? LayerSelection::every(layers) : LayerSelection::first(layers)};
}

std::optional<std::string> expected_layers(std::string_view text) {
  const SplitText split(text);
  if (!split.number || !split.sound_parts() || recomputation(text)) return std::nullopt;
  return std::string{split.parts} + (split.is_every ? ":1/N" : ":N") + " with N from " +
         std::to_string(split.least()) + " to " + std::to_string(kMaxLayers);
}

}  // namespace dapple
