// Decimal numbers as text, made into whole counts of a smaller unit without a detour over binary
// fractions: "0.056" milliseconds are exactly 56,000 ns. Grammar: digits with an optional sign,
// point and exponent ("3", "2.50", ".5", "5.", "1e-05", "+1E+2"); no blanks, no other signs, no
// names such as "inf". Readers whose format has a narrower grammar check it before.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "dapple/core/quantity.h"

namespace dapple {

/// digits * 10^exponent, negated if it says so. The digits have no zero at either end; zero has
/// none at all, and no sign and no exponent, so equal numbers have equal members.
struct Decimal {
  bool negative = false;
  std::string digits;
  std::int64_t exponent = 0;

  friend bool operator==(const Decimal&, const Decimal&) = default;
};

/// The number in `text`, exactly, or nothing if it is none. An exponent beyond 2^40 counts as 2^40:
/// no count can tell the difference. O(length of the text).
std::optional<Decimal> parse_decimal(std::string_view text);

/// True of digits, or digits, a point and digits ("12", "0.4"); no sign, no exponent.
bool is_plain_decimal(std::string_view text);

/// The number in `text` times `scale`, if that is whole and its magnitude below 10^36; nothing
/// otherwise, and nothing if the text is no number. Exact, however many digits there are.
/// O(length of the text). Requires: 1 <= scale <= 10^12.
std::optional<Wide> scaled_exactly(std::string_view text, std::int64_t scale);

enum class DecimalFault {
  None,
  NotANumber,
  Negative,  // and not zero: "-0.0" is zero
  TooLarge,  // above kMaxCount
};

struct RoundedCount {
  std::int64_t count = 0;  // 0 unless the fault is None
  DecimalFault fault = DecimalFault::None;

  friend bool operator==(const RoundedCount&, const RoundedCount&) = default;
};

/// The number in `text` times `scale`, rounded up to a whole number from 0 to kMaxCount, or why
/// there is none. O(length of the text). Requires: 1 <= scale <= 10^12.
RoundedCount scaled_up(std::string_view text, std::int64_t scale);

}  // namespace dapple
