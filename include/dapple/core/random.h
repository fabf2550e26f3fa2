// Counter-based random numbers: each is a pure function of its stream and its position, without
// mutable state, and the same with every standard library except for the last bits of logarithm and
// cosine.
//
// Sources: splitmix64 (Steele, Lea and Flood 2014, figure 16, with Stafford's variant 13 of the
// mixing function), whose numbers can be computed in any order; Box and Muller 1958 for normally
// distributed numbers.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

namespace dapple {

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

}  // namespace dapple
