// Random numbers that are functions of where they are used: no state, no order, the same with every
// standard library but for the last bits of logarithm and cosine.
//
// Source: splitmix64 (Steele, Lea and Flood 2014, figure 16, with Stafford's variant 13 of the
// mixing), whose numbers can be had in any order; Box and Muller 1958 for normal ones.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

namespace dapple {

class RandomStream {
 public:
  explicit RandomStream(std::uint64_t seed);

  /// A stream of its own for each name or number.
  RandomStream of(std::string_view name) const;
  RandomStream of(std::uint64_t number) const;

  /// The stream's numbers, counted from zero: 64 bits each.
  std::uint64_t bits(std::uint64_t number) const;
  /// Below `count`, each about as likely: to count / 2^64. Requires: count >= 1.
  std::int64_t below(std::int64_t count, std::uint64_t number) const;
  /// Two normal numbers of deviation one, from numbers 2 `pair` and 2 `pair` + 1.
  std::pair<float, float> normal_pair(std::uint64_t pair) const;

 private:
  std::uint64_t state_;
};

}  // namespace dapple
