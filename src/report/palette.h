// The colours of drawings. A stage has a hue, a kind of work a tone of it, so that kinds can be
// told apart without seeing colours, and in print. Eight hues, neighbours far apart; more stages
// use them again. Tones are OKLCH colours of equal lightness over the hues (0.87, 0.74, 0.55 on
// light ground, 0.78, 0.64, 0.50 on dark), with as much chroma as sRGB has for them, up to 0.15.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dapple/core/index.h"
#include "dapple/schedule/schedule.h"

namespace dapple::report {

enum class Ground : std::uint8_t { Light, Dark };

/// How a kind of work is drawn and called.
struct KindStyle {
  ActionKind kind;
  enum class Tone : std::uint8_t { Light, Middle, Strong, Neutral } tone;
  std::string_view words;  // "forward"
  bool has_number;         // of a micro-batch or bucket, shown in its box
};

/// Style of a kind of action that takes time. Throws Bug for one that is a moment (a receive).
const KindStyle& style_of(ActionKind kind);

/// All of them, in the order of a legend.
const std::vector<KindStyle>& kind_styles();

/// Whether text on that tone, on light ground, is dark.
constexpr bool is_pale(KindStyle::Tone tone) {
  return tone == KindStyle::Tone::Light || tone == KindStyle::Tone::Middle;
}

/// "#2971c6".
std::string_view color_of(KindStyle::Tone tone, StageIndex stage, Ground ground);

/// After so many stages the hues begin again.
inline constexpr std::int32_t kHues = 8;

}  // namespace dapple::report
