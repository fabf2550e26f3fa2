#include "dapple/core/quantity.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>

#include "dapple/core/random.h"

namespace dapple {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

/// Returns a number with at most so many binary digits, small ones as likely as large ones.
Wide number_of(RandomSequence& random, std::int64_t most_digits) {
  const std::int64_t digits = random.roll(1, most_digits);
  Wide number = 0;
  for (std::int64_t i = 0; i < digits; ++i) number = 2 * number + random.roll(0, 1);
  return number;
}

void check_quotient(Wide numerator, Wide denominator) {
  if (numerator < 0 || numerator / denominator > kMost) return;
  const auto down = static_cast<std::int64_t>(numerator / denominator);
  REQUIRE(divide_down(numerator, denominator) == down);
  const bool is_whole = numerator % denominator == 0;
  if (down < kMost) REQUIRE(divide_up(numerator, denominator) == down + (is_whole ? 0 : 1));
}

TEST_CASE("quotients are exact however large their terms are") {
  RandomSequence random(71);
  for (int i = 0; i < 200'000; ++i) {
    const Wide numerator = number_of(random, 120);
    const Wide denominator = 1 + number_of(random, 100);
    check_quotient(numerator, denominator);
    // Multiples, and their neighbours, are where an estimate may be on the wrong side.
    const Wide multiple = numerator / denominator * denominator;
    for (const Wide other : {multiple - 1, multiple, multiple + 1}) {
      check_quotient(other, denominator);
    }
  }
  for (const std::int64_t one : {std::int64_t{1}, std::int64_t{3}, kMost - 1, kMost}) {
    for (const std::int64_t other : {std::int64_t{1}, std::int64_t{2}, kMost - 1, kMost}) {
      check_quotient(Wide{one} * other, one);
      check_quotient(Wide{one} * other - 1, other);
    }
  }
  static_assert(divide_up(7, 2) == 4);
}

}  // namespace
}  // namespace dapple
