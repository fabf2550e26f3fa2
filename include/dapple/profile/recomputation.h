// The parts of a layer that are computed again in its backward instead of being kept.
//
// Source: Korthikanti et al. 2022, section 5 (selective recomputation); the names are those of
// Megatron-LM's modules to recompute.
#pragma once

#include <compare>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace dapple {

enum class RecomputedPart : std::uint8_t {
  /// The scores of attention and what follows from them.
  CoreAttention,
  /// Normalizations in front of matrix products.
  Norm,
  /// A dense feed-forward layer.
  FeedForward,
  /// All experts with their router.
  Experts,
  /// The activation function within experts.
  ExpertActivation,
  /// The whole layer, of which only the input is kept.
  Layer
};

inline constexpr RecomputedPart kRecomputedParts[] = {
    RecomputedPart::CoreAttention,    RecomputedPart::Norm,
    RecomputedPart::FeedForward,      RecomputedPart::Experts,
    RecomputedPart::ExpertActivation, RecomputedPart::Layer};

/// Returns "core_attn", "norm", "mlp", "moe", "moe_act" or "full".
std::string_view to_string(RecomputedPart part);

/// A set of parts.
class RecomputedParts {
 public:
  constexpr RecomputedParts() = default;
  constexpr RecomputedParts(std::initializer_list<RecomputedPart> parts) {
    for (const RecomputedPart part : parts) add(part);
  }

  constexpr bool none() const { return parts_ == 0; }
  constexpr bool contains(RecomputedPart part) const { return (parts_ & bit(part)) != 0; }
  constexpr void add(RecomputedPart part) {
    parts_ = static_cast<std::uint8_t>(parts_ | bit(part));
  }
  constexpr bool includes(RecomputedParts others) const { return (others.parts_ & ~parts_) == 0; }
  /// Whether no part of the set is within another one: a whole layer stands alone, and so do all
  /// experts beside their activation function.
  constexpr bool is_sound() const {
    const bool is_whole = contains(RecomputedPart::Layer);
    const bool is_within =
        contains(RecomputedPart::Experts) && contains(RecomputedPart::ExpertActivation);
    return (!is_whole || parts_ == bit(RecomputedPart::Layer)) && !is_within;
  }

  friend constexpr auto operator<=>(RecomputedParts, RecomputedParts) = default;

 private:
  static constexpr unsigned bit(RecomputedPart part) { return 1U << static_cast<unsigned>(part); }

  std::uint8_t parts_ = 0;
};

inline constexpr RecomputedParts kWholeLayer{RecomputedPart::Layer};

/// The parts that dapple-exec recomputes.
inline constexpr RecomputedParts kPartsOfExecutor{
    RecomputedPart::Layer, RecomputedPart::CoreAttention, RecomputedPart::FeedForward,
    RecomputedPart::Experts};

/// What RecomputedParts::is_sound() demands, for messages.
inline constexpr const char* kSoundRecomputation =
    "parts of a layer of which none is within another: full alone, and moe without moe_act";

/// Returns the parts with '+' between them, such as "core_attn+norm"; empty for none.
std::string to_text(RecomputedParts parts);

/// The paper's and Megatron-LM's word for recomputing the core of the attention.
inline constexpr std::string_view kSelective = "selective";

/// Returns the set of a text as to_text() makes it, in which kSelective may stand for the core of
/// the attention, or nothing if a part is unknown or twice there. Whether the set is sound is not
/// checked.
std::optional<RecomputedParts> recomputed_parts(std::string_view text);

/// Some layers of every stage, of those that have the parts to recompute: all, the first ones, or
/// every n-th, which are the n-th, the 2n-th and so on, counted from the first one of the stage.
class LayerSelection {
 public:
  enum class Kind : std::uint8_t { All, First, EveryNth };

  /// Selects all layers.
  constexpr LayerSelection() = default;
  /// Selects the first ones. Requires: count >= 1.
  static constexpr LayerSelection first(std::int64_t count) { return {Kind::First, count}; }
  /// Selects every n-th. Requires: n >= 2.
  static constexpr LayerSelection every(std::int64_t n) { return {Kind::EveryNth, n}; }

  constexpr Kind kind() const { return kind_; }
  constexpr bool is_all() const { return kind_ == Kind::All; }
  /// The number of first layers, or n; 0 for all layers.
  constexpr std::int64_t number() const { return number_; }
  /// Whether the layer is selected that so many of a stage's layers with the parts precede.
  constexpr bool contains(std::int64_t preceding) const {
    if (kind_ == Kind::First) return preceding < number_;
    return kind_ == Kind::All || (preceding + 1) % number_ == 0;
  }
  /// Whether no stage has a layer that is not selected, in a model of which so many layers have the
  /// parts.
  constexpr bool contains_all_of(std::int64_t layers) const {
    return is_all() || layers == 0 || (kind_ == Kind::First && layers <= number_);
  }

  friend constexpr auto operator<=>(const LayerSelection&, const LayerSelection&) = default;

 private:
  constexpr LayerSelection(Kind kind, std::int64_t number) : kind_(kind), number_(number) {}

  Kind kind_ = Kind::All;
  std::int64_t number_ = 0;
};

/// What of a stage is recomputed: parts of its layers, in those that are selected.
struct Recomputation {
  RecomputedParts parts;
  LayerSelection layers = {};

  friend constexpr auto operator<=>(const Recomputation&, const Recomputation&) = default;
};

/// In which layers of a stage, other than all, a runtime can recompute whole layers.
struct SelectableLayers {
  bool first = false;
  /// It counts them through all stages of a device, one stage after another.
  bool every_nth = false;

  /// Whether it can recompute these parts of these layers, if it can recompute them in all.
  constexpr bool has(const Recomputation& recomputation) const {
    if (recomputation.layers.is_all()) return true;
    const bool are_first = recomputation.layers.kind() == LayerSelection::Kind::First;
    return recomputation.parts == kWholeLayer && (are_first ? first : every_nth);
  }
  constexpr bool has_some() const { return first || every_nth; }
};

/// Returns the parts and the layers, such as "core_attn+norm" for all layers, "full:4" for the
/// first four of a stage or "full:1/2" for every second one; empty for none.
std::string to_text(const Recomputation& recomputation);

/// Returns the recomputation of a text as to_text() makes it, or nothing if it is none: a part is
/// unknown or twice there, the set is not sound, or the number is not from 1, or for every n-th
/// layer from 2, to kMaxLayers.
std::optional<Recomputation> recomputation(std::string_view text);

/// Returns what is expected of a text in which only the number of layers is wrong, such as "full:N
/// with N from 1 to 100000"; nothing for any other text.
std::optional<std::string> expected_layers(std::string_view text);

}  // namespace dapple
