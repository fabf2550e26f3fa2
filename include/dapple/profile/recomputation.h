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

/// What RecomputedParts::is_sound() demands, for messages.
inline constexpr const char* kSoundRecomputation =
    "parts of a layer of which none is within another: full alone, and moe without moe_act";

/// Returns the parts with '+' between them, such as "core_attn+norm"; empty for none.
std::string to_text(RecomputedParts parts);

/// Returns the set of a text as to_text() makes it, or nothing if a part is unknown or twice there.
/// Whether the set is sound is not checked.
std::optional<RecomputedParts> recomputed_parts(std::string_view text);

/// What of a stage is recomputed: parts of its layers, in as many of them as is said.
struct Recomputation {
  RecomputedParts parts;
  /// The number of layers of every stage, the first ones of those that have the parts; 0 for all.
  std::int64_t layers = 0;

  friend constexpr auto operator<=>(const Recomputation&, const Recomputation&) = default;
};

/// Returns the parts and the number of layers, such as "core_attn+norm" for all layers or "full:4"
/// for the first four of a stage; empty for none.
std::string to_text(const Recomputation& recomputation);

/// Returns the recomputation of a text as to_text() makes it, or nothing if it is none: a part is
/// unknown or twice there, the set is not sound, or the number is not from 1 to kMaxLayers.
std::optional<Recomputation> recomputation(std::string_view text);

}  // namespace dapple
