// Converts decimal numbers in text to whole counts of a smaller unit without binary floating point:
// "0.056" milliseconds are exactly 56,000 ns. Grammar: digits with an optional sign, point and
// exponent ("3", "2.50", ".5", "5.", "1e-05", "+1E+2"); no blanks, no other signs, no names such as
// "inf". Readers of formats with a narrower grammar check it beforehand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "dapple/core/quantity.h"

namespace dapple {

/// The number digits * 10^exponent, negated if `negative`. The digits neither begin nor end with a
/// zero; zero itself has no digits, no sign and exponent 0, so equal numbers have equal members.
struct Decimal {
  bool negative = false;
  std::string digits;
  std::int64_t exponent = 0;

  friend bool operator==(const Decimal&, const Decimal&) = default;
};

/// Returns the exact number in `text`, or nothing if the text is not a number. The magnitude of an
/// exponent is capped at 2^40, which makes no difference to any count. O(length of the text).
std::optional<Decimal> parse_decimal(std::string_view text);

/// Whether the text consists of digits, or of digits, a point and digits ("12", "0.4"), without a
/// sign or an exponent.
bool is_plain_decimal(std::string_view text);

/// Returns the number in `text` times `scale` if the product is an integer of magnitude below
/// 10^36, and nothing otherwise or if the text is not a number. The result is exact for any number
/// of digits. O(length of the text). Requires: 1 <= scale <= 10^12.
std::optional<Wide> scaled_exactly(std::string_view text, std::int64_t scale);

enum class DecimalFault {
  None,
  NotANumber,
  /// The number is below zero; "-0.0" is zero and not negative.
  Negative,
  /// The count is above kMaxCount.
  TooLarge,
};

struct RoundedCount {
  /// The count; 0 unless `fault` is None.
  std::int64_t count = 0;
  DecimalFault fault = DecimalFault::None;

  friend bool operator==(const RoundedCount&, const RoundedCount&) = default;
};

/// Returns the number in `text` times `scale`, rounded up to an integer from 0 to kMaxCount, or the
/// reason why there is no such count. O(length of the text). Requires: 1 <= scale <= 10^12.
RoundedCount scaled_up(std::string_view text, std::int64_t scale);

}  // namespace dapple
