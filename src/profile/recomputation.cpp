#include "dapple/profile/recomputation.h"

#include <algorithm>
#include <iterator>

#include "dapple/core/error.h"

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

}  // namespace dapple
