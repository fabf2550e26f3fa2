#include "decimal.h"

#include <algorithm>
#include <string>

#include "dapple/core/quantity.h"

namespace dapple {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Takes the digits at the front of `rest`.
std::string_view take_digits(std::string_view& rest) {
  std::size_t length = 0;
  while (length < rest.size() && is_digit(rest[length])) ++length;
  const std::string_view digits = rest.substr(0, length);
  rest.remove_prefix(length);
  return digits;
}

/// Takes a sign at the front of `rest`; true if it is a minus.
bool take_sign(std::string_view& rest) {
  if (rest.empty() || (rest.front() != '-' && rest.front() != '+')) return false;
  const bool minus = rest.front() == '-';
  rest.remove_prefix(1);
  return minus;
}

/// Takes "e-05" at the front of `rest`, or nothing; no value if there is an e without a number.
/// Exponents are cut off where every number is zero or too large anyway.
std::optional<std::int64_t> take_exponent(std::string_view& rest) {
  if (rest.empty() || (rest.front() != 'e' && rest.front() != 'E')) return 0;
  rest.remove_prefix(1);
  const bool minus = take_sign(rest);
  const std::string_view digits = take_digits(rest);
  if (digits.empty()) return std::nullopt;
  constexpr std::int64_t kCutOff = std::int64_t{1} << 40;
  std::int64_t exponent = 0;
  for (const char digit : digits) exponent = std::min(kCutOff, exponent * 10 + (digit - '0'));
  return minus ? -exponent : exponent;
}

/// 0.d1d2d3... * 10^point, rounded up. `digits` neither begins with a zero nor is empty.
Decimal round_up(const std::string& digits, std::int64_t point) {
  constexpr std::int64_t kDigitsOfMaxCount = 16;
  if (point > kDigitsOfMaxCount) return {0, DecimalFault::TooLarge};
  const auto whole = static_cast<std::size_t>(std::max<std::int64_t>(point, 0));
  std::int64_t count = 0;
  for (std::size_t i = 0; i < whole; ++i) {
    count = count * 10 + (i < digits.size() ? digits[i] - '0' : 0);
  }
  const bool exact = digits.find_first_not_of('0', whole) == std::string::npos;
  if (!exact) ++count;
  if (count > kMaxCount) return {0, DecimalFault::TooLarge};
  return {count, DecimalFault::None};
}

}  // namespace

Decimal parse_decimal(std::string_view text, int shift) {
  std::string_view rest = text;
  const bool minus = take_sign(rest);
  std::string digits{take_digits(rest)};
  std::int64_t point = static_cast<std::int64_t>(digits.size());
  if (!rest.empty() && rest.front() == '.') {
    rest.remove_prefix(1);
    digits += take_digits(rest);
  }
  const std::optional<std::int64_t> exponent = take_exponent(rest);
  if (digits.empty() || !exponent || !rest.empty()) return {0, DecimalFault::NotANumber};

  const std::size_t zeros = digits.find_first_not_of('0');
  if (zeros == std::string::npos) return {0, DecimalFault::None};
  if (minus) return {0, DecimalFault::Negative};
  digits.erase(0, zeros);
  point += *exponent + shift - static_cast<std::int64_t>(zeros);
  return round_up(digits, point);
}

}  // namespace dapple
