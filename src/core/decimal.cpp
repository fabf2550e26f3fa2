#include "dapple/core/decimal.h"

#include <algorithm>

#include "dapple/core/error.h"

namespace dapple {
namespace {

constexpr std::string_view kDigits = "0123456789";

/// Removes the digits at the front of `rest` and returns them.
std::string_view take_digits(std::string_view& rest) {
  const std::string_view digits = rest.substr(0, rest.find_first_not_of(kDigits));
  rest.remove_prefix(digits.size());
  return digits;
}

/// Removes a sign at the front of `rest`, if there is one; returns true if it is a minus.
bool take_sign(std::string_view& rest) {
  if (rest.empty() || (rest.front() != '-' && rest.front() != '+')) return false;
  const bool minus = rest.front() == '-';
  rest.remove_prefix(1);
  return minus;
}

/// Removes an exponent such as "e-05" at the front of `rest` and returns it, capped at a magnitude
/// of 2^40; 0 if there is none, and no value if an "e" is not followed by a number.
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

/// Brings the number into the unique form that Decimal describes.
void normalise(Decimal& decimal) {
  const std::size_t last = decimal.digits.find_last_not_of('0');
  if (last == std::string::npos) {
    decimal = Decimal{};
    return;
  }
  decimal.exponent += static_cast<std::int64_t>(decimal.digits.size() - last - 1);
  decimal.digits.erase(last + 1);
  decimal.digits.erase(0, decimal.digits.find_first_not_of('0'));
}

Decimal product_of(Decimal decimal, std::int64_t scale) {
  check(scale >= 1 && scale <= 1'000'000'000'000, "the scale of a decimal is out of range");
  std::int64_t carry = 0;  // below the scale, so everything here is below 10^13
  for (auto digit = decimal.digits.rbegin(); digit != decimal.digits.rend(); ++digit) {
    carry += (*digit - '0') * scale;
    *digit = static_cast<char>('0' + carry % 10);
    carry /= 10;
  }
  decimal.digits.insert(0, std::to_string(carry));
  normalise(decimal);
  return decimal;
}

/// Returns the number of digits before the point; zero or less for a number below one.
std::int64_t whole_digits(const Decimal& decimal) {
  return static_cast<std::int64_t>(decimal.digits.size()) + decimal.exponent;
}

/// Returns the magnitude, rounded down. Requires: at most 38 digits before the point.
Wide whole_part(const Decimal& decimal) {
  Wide whole = 0;
  for (std::int64_t i = 0; i < whole_digits(decimal); ++i) {
    const auto position = static_cast<std::size_t>(i);
    whole = whole * 10 + (position < decimal.digits.size() ? decimal.digits[position] - '0' : 0);
  }
  return whole;
}

}  // namespace

std::optional<Decimal> parse_decimal(std::string_view text) {
  std::string_view rest = text;
  Decimal decimal;
  decimal.negative = take_sign(rest);
  decimal.digits = take_digits(rest);
  if (!rest.empty() && rest.front() == '.') {
    rest.remove_prefix(1);
    const std::string_view places = take_digits(rest);
    decimal.digits += places;
    decimal.exponent = -static_cast<std::int64_t>(places.size());
  }
  const std::optional<std::int64_t> exponent = take_exponent(rest);
  if (decimal.digits.empty() || !exponent || !rest.empty()) return std::nullopt;
  decimal.exponent += *exponent;
  normalise(decimal);
  return decimal;
}

bool is_plain_decimal(std::string_view text) {
  if (take_digits(text).empty()) return false;
  if (text.empty()) return true;
  if (text.front() != '.') return false;
  text.remove_prefix(1);
  return !take_digits(text).empty() && text.empty();
}

std::optional<Wide> scaled_exactly(std::string_view text, std::int64_t scale) {
  constexpr std::int64_t kMostDigits = 36;
  const std::optional<Decimal> decimal = parse_decimal(text);
  if (!decimal) return std::nullopt;
  const Decimal product = product_of(*decimal, scale);
  if (product.exponent < 0 || whole_digits(product) > kMostDigits) return std::nullopt;
  const Wide count = whole_part(product);
  return product.negative ? -count : count;
}

RoundedCount scaled_up(std::string_view text, std::int64_t scale) {
  constexpr std::int64_t kDigitsOfMaxCount = 16;
  const std::optional<Decimal> decimal = parse_decimal(text);
  if (!decimal) return {.fault = DecimalFault::NotANumber};
  if (decimal->negative) return {.fault = DecimalFault::Negative};
  const Decimal product = product_of(*decimal, scale);
  if (whole_digits(product) > kDigitsOfMaxCount) return {.fault = DecimalFault::TooLarge};
  const bool is_whole = product.exponent >= 0;
  const Wide count = whole_part(product) + (is_whole ? 0 : 1);
  if (count > kMaxCount) return {.fault = DecimalFault::TooLarge};
  return {.count = static_cast<std::int64_t>(count)};
}

}  // namespace dapple
