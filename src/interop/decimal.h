// Decimal numbers as text, made into whole counts of a smaller unit without a detour over binary
// fractions: "0.056" milliseconds are exactly 56,000 ns.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace dapple {

enum class DecimalFault { None, NotANumber, Negative, TooLarge };

struct Decimal {
  std::int64_t count = 0;
  DecimalFault fault = DecimalFault::None;
};

/// `text` times 10^shift, rounded up to a whole number. Accepts digits with an optional sign, point
/// and exponent ("3", "2.50", ".5", "1e-05"); "-0.0" is zero. TooLarge above kMaxCount.
/// O(length of the text).
Decimal parse_decimal(std::string_view text, int shift);

}  // namespace dapple
