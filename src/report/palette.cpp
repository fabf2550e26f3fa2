#include "report/palette.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "dapple/core/error.h"

namespace dapple::report {
namespace {

using Tone = KindStyle::Tone;
using Hues = std::array<std::string_view, kHues>;

// Blue, orange, teal, magenta, olive, violet, red, cyan. Consecutive hues can be told apart by
// readers with red-green colour blindness.
constexpr std::array<Hues, 3> kOnLight{
    {{"#bad7fc", "#fac9a3", "#a6e4c8", "#f9c1e0", "#d7d9a0", "#dbcaff", "#fcc4bf", "#9ae1f3"},
     {"#7aaeef", "#de9a60", "#5fc199", "#dc8ebb", "#afb15b", "#b59be6", "#e88f87", "#45bcd6"},
     {"#2971c6", "#a75c00", "#038660", "#ac4785", "#767700", "#8059bb", "#b94642", "#0b7f94"}}};
constexpr std::array<Hues, 3> kOnDark{
    {{"#8cbaf7", "#e7a875", "#75cca7", "#e69dc6", "#bbbd70", "#c1a9ee", "#f19e97", "#62c8df"},
     {"#578ed4", "#c17938", "#2ea37a", "#bf6d9d", "#91922f", "#987aca", "#cb6d67", "#139cb6"},
     {"#2863ab", "#915006", "#007654", "#954074", "#686800", "#6f4fa1", "#a03f3c", "#0e6f81"}}};
constexpr std::string_view kNeutralOnLight = "#6b7280";
constexpr std::string_view kNeutralOnDark = "#9aa3b2";

}  // namespace

const std::vector<KindStyle>& kind_styles() {
  static const std::vector<KindStyle> kStyles{
      {ActionKind::Forward, Tone::Light, "forward", true},
      {ActionKind::Backward, Tone::Strong, "backward", true},
      {ActionKind::InputGradient, Tone::Strong, "input gradient", true},
      {ActionKind::WeightGradient, Tone::Middle, "weight gradient", true},
      {ActionKind::OptimizerStep, Tone::Neutral, "optimizer step", false},
      {ActionKind::SendActivation, Tone::Light, "activations", true},
      {ActionKind::SendGradient, Tone::Strong, "gradients", true},
      {ActionKind::AllReduce, Tone::Middle, "all-reduce", true},
      {ActionKind::ReduceTied, Tone::Middle, "all-reduce across stages", true},
  };
  return kStyles;
}

const KindStyle& style_of(ActionKind kind) {
  const std::vector<KindStyle>& styles = kind_styles();
  const auto found = std::find_if(styles.begin(), styles.end(),
                                  [kind](const KindStyle& style) { return style.kind == kind; });
  check(found != styles.end(), "a kind of action that is drawn has a style");
  return *found;
}

std::string_view color_of(KindStyle::Tone tone, StageIndex stage, Ground ground) {
  const bool is_light = ground == Ground::Light;
  if (tone == Tone::Neutral) return is_light ? kNeutralOnLight : kNeutralOnDark;
  const auto& tones = is_light ? kOnLight : kOnDark;
  return tones[static_cast<std::size_t>(tone)][static_cast<std::size_t>(stage.value % kHues)];
}

}  // namespace dapple::report
