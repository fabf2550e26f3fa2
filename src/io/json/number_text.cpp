#include "io/json/number_text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdint>

#include "dapple/core/error.h"

namespace dapple::io {
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
  // For a number too small for a double, the value remains zero, which is the nearest double.
  check(error != std::errc::invalid_argument && end == text.data() + text.size(),
        "a JSON number is not one");
  return value;
}

std::string write_number(double value) {
  check(std::isfinite(value), "a figure is not a finite number");
  return value == 0 ? "0" : fmt::format("{}", value);
}

}  // namespace dapple::io
