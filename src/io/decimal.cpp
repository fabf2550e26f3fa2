#include "decimal.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdint>

#include "dapple/core/error.h"

namespace dapple::io {
namespace {

constexpr Wide kMaxScaled = Wide{1'000'000'000'000'000'000} * 1'000'000'000'000'000'000;

/// digits * 10^exponent, without zeros at either end of the digits.
struct Decimal {
  bool negative = false;
  std::string digits;  // empty for zero
  std::int64_t exponent = 0;
};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::optional<Decimal> parse_decimal(std::string_view text) {
  Decimal decimal;
  std::size_t next = 0;
  if (next < text.size() && text[next] == '-') {
    decimal.negative = true;
    ++next;
  }
  for (; next < text.size() && is_digit(text[next]); ++next) decimal.digits += text[next];
  if (decimal.digits.empty()) return std::nullopt;
  if (next < text.size() && text[next] == '.') {
    const std::size_t first = ++next;
    for (; next < text.size() && is_digit(text[next]); ++next) decimal.digits += text[next];
    if (next == first) return std::nullopt;
    decimal.exponent = -static_cast<std::int64_t>(next - first);
  }
  if (next < text.size() && (text[next] == 'e' || text[next] == 'E')) {
    ++next;
    if (next < text.size() && text[next] == '+') ++next;
    std::int32_t exponent = 0;
    const auto [end, error] =
        std::from_chars(text.data() + next, text.data() + text.size(), exponent);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    decimal.exponent += exponent;
    next = text.size();
  }
  if (next != text.size()) return std::nullopt;
  while (!decimal.digits.empty() && decimal.digits.back() == '0') {
    decimal.digits.pop_back();
    ++decimal.exponent;
  }
  decimal.digits.erase(0, decimal.digits.find_first_not_of('0'));
  return decimal;
}

}  // namespace

std::optional<Wide> scaled_decimal(std::string_view text, Wide scale) {
  const std::optional<Decimal> decimal = parse_decimal(text);
  if (!decimal) return std::nullopt;
  if (decimal->digits.empty()) return 0;
  // With at most 24 digits, what follows stays below 10^37, which is inside 128 bits.
  if (decimal->digits.size() > 24) return std::nullopt;
  Wide value = 0;
  for (const char digit : decimal->digits) value = value * 10 + (digit - '0');
  value *= scale;
  for (std::int64_t exponent = decimal->exponent; exponent > 0; --exponent) {
    if (value >= kMaxScaled / 10) return std::nullopt;
    value *= 10;
  }
  for (std::int64_t exponent = decimal->exponent; exponent < 0; ++exponent) {
    if (value % 10 != 0) return std::nullopt;
    value /= 10;
  }
  if (value >= kMaxScaled) return std::nullopt;
  return decimal->negative ? -value : value;
}

std::string decimal_text(std::int64_t count, std::int64_t scale) {
  std::string text = fmt::format("{}", count / scale);
  std::int64_t rest = count % scale;
  if (rest == 0) return text;
  text += '.';
  while (rest != 0) {
    rest *= 10;
    text += static_cast<char>('0' + rest / scale);
    rest %= scale;
  }
  return text;
}

std::string factor_text(Factor factor) {
  return decimal_text(factor.billionths, kOne.billionths);
}

double parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // A number too small for a double leaves the value as it was: zero is the nearest.
  check(error != std::errc::invalid_argument && end == text.data() + text.size(),
        "a JSON number is not one");
  return value;
}

std::string write_number(double value) {
  check(std::isfinite(value), "a figure is not a finite number");
  return value == 0 ? "0" : fmt::format("{}", value);
}

}  // namespace dapple::io
