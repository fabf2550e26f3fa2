// Random numbers from a seed, the same with every standard library except for the last bits of
// logarithm and cosine: in any order for what is trained, one after another for searches and tests.
//
// Sources: splitmix64 (Steele, Lea and Flood 2014, figure 16, with Stafford's variant 13 of the
// mixing function), whose numbers can be computed in any order; Box and Muller 1958 for normally
// distributed numbers; the Mersenne Twister of 64 bits (Matsumoto and Nishimura 1998, Nishimura
// 2000).
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>
#include <utility>

namespace dapple {

/// Counter-based random numbers: each is a pure function of its stream and its position, without
/// mutable state.
class RandomStream {
 public:
  explicit RandomStream(std::uint64_t seed);

  /// Returns the substream of this stream for a name or number.
  RandomStream of(std::string_view name) const;
  RandomStream of(std::uint64_t number) const;

  /// Returns the 64 random bits at position `number` of the stream, counted from zero.
  std::uint64_t bits(std::uint64_t number) const;
  /// Returns a random integer in [0, count), derived from bits(number). The relative error of the
  /// uniform distribution is below count / 2^64. Requires: count >= 1.
  std::int64_t below(std::int64_t count, std::uint64_t number) const;
  /// Returns two standard normal numbers, derived from bits(2 * pair) and bits(2 * pair + 1).
  std::pair<float, float> normal_pair(std::uint64_t pair) const;

 private:
  std::uint64_t state_;
};

/// Random numbers one after another. Unlike the standard's distributions, it gives the same numbers
/// with every library; algorithms such as std::shuffle, which take it as their engine, may not.
class RandomSequence {
 public:
  using result_type = std::uint64_t;

  explicit RandomSequence(std::uint64_t seed) : engine_(seed) {}

  static constexpr result_type min() { return std::mt19937_64::min(); }
  static constexpr result_type max() { return std::mt19937_64::max(); }
  /// Returns 64 random bits.
  result_type operator()() { return engine_(); }

  /// Returns an integer in [0, count). Requires: count >= 1.
  std::size_t below(std::size_t count) { return engine_() % count; }
  /// Returns an integer from `least` to `most`, both included. Requires: least <= most.
  std::int64_t roll(std::int64_t least, std::int64_t most) {
    return least +
           static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(most - least + 1));
  }
  /// Returns true with a probability of `percent` in a hundred.
  bool chance(std::int64_t percent) { return roll(1, 100) <= percent; }

 private:
  std::mt19937_64 engine_;
};

}  // namespace dapple
