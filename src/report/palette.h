// The colours of drawings. Each stage has a hue and each kind of work a tone of that hue, so that
// kinds can be told apart in print and by colour-blind readers. There are eight hues, of which
// consecutive ones differ clearly; further stages reuse them. Tones are OKLCH colours with the same
// lightness for all hues (0.87, 0.74, 0.55 on a light background, 0.78, 0.64, 0.50 on a dark one)
// and the largest chroma that sRGB allows for them, up to 0.15.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dapple/core/index.h"
#include "dapple/schedule/schedule.h"

namespace dapple::report {

enum class Ground : std::uint8_t { Light, Dark };

/// The appearance and name of a kind of work.
struct KindStyle {
  ActionKind kind;
  enum class Tone : std::uint8_t { Light, Middle, Strong, Neutral } tone;
  /// The name in drawings, such as "forward".
  std::string_view words;
  /// Whether its box shows the number of the micro-batch or bucket.
  bool has_number;
};

/// Returns the style of a kind of action that takes time. Throws Bug for an instantaneous one (a
/// receive).
const KindStyle& style_of(ActionKind kind);

/// Returns the styles of all kinds, in the order of the legend.
const std::vector<KindStyle>& kind_styles();

/// Whether text on that tone must be dark, given a light background.
constexpr bool is_pale(KindStyle::Tone tone) {
  return tone == KindStyle::Tone::Light || tone == KindStyle::Tone::Middle;
}

/// Returns the colour of a tone of a stage's hue, such as "#2971c6".
std::string_view color_of(KindStyle::Tone tone, StageIndex stage, Ground ground);

/// The number of hues, after which they repeat.
inline constexpr std::int32_t kHues = 8;

}  // namespace dapple::report
