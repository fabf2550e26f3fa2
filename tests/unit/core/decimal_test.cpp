// Decimal text: one parsed form for each number, exact multiples, and counts rounded up once.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "../../support/dice.h"
#include "dapple/core/decimal.h"
#include "dapple/core/error.h"

using namespace dapple;

namespace {

constexpr std::int64_t kMillion = 1'000'000;
constexpr std::int64_t kLargestScale = 1'000'000'000'000;

Wide power_of_ten(std::int64_t exponent) {
  Wide power = 1;
  for (std::int64_t i = 0; i < exponent; ++i) power *= 10;
  return power;
}

/// count * 10^exponent with `places` digits behind its point, and zeros around it.
std::string spell(std::int64_t count, std::int64_t exponent, std::size_t places) {
  std::string text = std::to_string(count);
  if (text.size() <= places) text.insert(0, places + 1 - text.size(), '0');
  text.insert(text.size() - places, 1, '.');
  return "00" + text + "0e" + std::to_string(exponent + static_cast<std::int64_t>(places));
}

}  // namespace

TEST_CASE("equal numbers are parsed into equal members") {
  const Decimal twelve{.digits = "12"};
  for (const std::string text : {"12", "012", "12.", "12.0", "0012.000", "+12", "1.2e1", "120E-1",
                                 "0.12e+02", "12e0", "12e-0"}) {
    INFO(text);
    CHECK(parse_decimal(text) == twelve);
  }
  CHECK(parse_decimal(".5") == Decimal{.digits = "5", .exponent = -1});
  CHECK(parse_decimal("1e-05") == Decimal{.digits = "1", .exponent = -5});
  CHECK(parse_decimal("-1200") == Decimal{.negative = true, .digits = "12", .exponent = 2});
  for (const std::string text : {"0", "-0.0", "00", ".0", "0.", "0e999999999999999999999"}) {
    INFO(text);
    CHECK(parse_decimal(text) == Decimal{});
  }
}

TEST_CASE("text that is no decimal number has no value") {
  for (const std::string text :
       {"",      ".",  "-",  "+",    "e5",    ".e5", "1e",  "1e+", "1e-",   "--1",     "+-1",
        "1.2.3", "1 ", " 1", "0x10", "1e5.0", "nan", "inf", "1,5", "1_000", "\xd9\xa1"}) {
    INFO(text);
    CHECK_FALSE(parse_decimal(text));
    CHECK_FALSE(scaled_exactly(text, 1));
    CHECK(scaled_up(text, 1) == RoundedCount{.fault = DecimalFault::NotANumber});
  }
}

TEST_CASE("a plain decimal is digits, or digits around a point") {
  for (const std::string text : {"0", "12", "0.4", "007.700"}) {
    INFO(text);
    CHECK(is_plain_decimal(text));
  }
  for (const std::string text : {"", ".", ".5", "5.", "-1", "+1", "1e3", "1.2.3", "1.2 ", "x"}) {
    INFO(text);
    CHECK_FALSE(is_plain_decimal(text));
  }
}

TEST_CASE("a multiple is exact or nothing") {
  CHECK(scaled_exactly("0.4", 1'000'000'000) == Wide{400'000'000});
  CHECK(scaled_exactly("-2.5", 2) == Wide{-5});
  CHECK_FALSE(scaled_exactly("2.5", 1));
  CHECK_FALSE(scaled_exactly("1e-13", kLargestScale));
  CHECK(scaled_exactly("1e-12", kLargestScale) == Wide{1});
  // 2^-30 = 0.000000000931322574615478515625: a byte is that much of a GiB.
  CHECK(scaled_exactly("0.000000000931322574615478515625", std::int64_t{1} << 30) == Wide{1});
  CHECK(scaled_exactly("1000000.000000000931322574615478515625", std::int64_t{1} << 30) ==
        Wide{1'000'000} * (std::int64_t{1} << 30) + 1);
  CHECK_FALSE(scaled_exactly("0.000000000931322574615478515626", std::int64_t{1} << 30));
}

TEST_CASE("a multiple has up to 36 digits, however the number is spelled") {
  const std::string nines(36, '9');
  CHECK(scaled_exactly(nines, 1) == power_of_ten(36) - 1);
  CHECK(scaled_exactly("-" + nines, 1) == 1 - power_of_ten(36));
  CHECK(scaled_exactly("1e35", 1) == power_of_ten(35));
  CHECK_FALSE(scaled_exactly("1e36", 1));
  CHECK_FALSE(scaled_exactly("1e35", 10));
  CHECK_FALSE(scaled_exactly(std::string(40, '1'), 1));
  CHECK(scaled_exactly(std::string(40, '1') + "e-4", 1) == std::nullopt);  // 36 digits and a rest
  CHECK(scaled_exactly(std::string(36, '1') + "0000e-4", 1) == (power_of_ten(36) - 1) / 9);
  CHECK(scaled_exactly(std::string(40, '0') + "7", 1) == Wide{7});
  CHECK_FALSE(scaled_exactly("1e999999999999999999999", 1));
  CHECK_FALSE(scaled_exactly("1e-999999999999999999999", kLargestScale));
  CHECK(scaled_exactly("0e999999999999999999999", kLargestScale) == Wide{0});
}

TEST_CASE("a count is rounded up once, from the exact number") {
  CHECK(scaled_up("0.056", kMillion) == RoundedCount{.count = 56'000});
  CHECK(scaled_up("1.005", kMillion) == RoundedCount{.count = 1'005'000});
  CHECK(scaled_up("0.0000001", kMillion) == RoundedCount{.count = 1});  // a tenth
  CHECK(scaled_up("2.0000010000", kMillion) == RoundedCount{.count = 2'000'001});
  CHECK(scaled_up("2.00000100000000000000000000000000000001", kMillion) ==
        RoundedCount{.count = 2'000'002});
  CHECK(scaled_up("1e-999999999999999999999", kMillion) == RoundedCount{.count = 1});
  CHECK(scaled_up(".5", 2) == RoundedCount{.count = 1});
  CHECK(scaled_up("-0.0", kMillion) == RoundedCount{.count = 0});
}

TEST_CASE("a count is no more than the largest figure of a file, and not negative") {
  CHECK(scaled_up("1000000000000000", 1) == RoundedCount{.count = kMaxCount});
  CHECK(scaled_up("999999999999999.1", 1) == RoundedCount{.count = kMaxCount});
  CHECK(scaled_up("1000000000000000.1", 1) == RoundedCount{.fault = DecimalFault::TooLarge});
  CHECK(scaled_up("9999999999999999", 1) == RoundedCount{.fault = DecimalFault::TooLarge});
  CHECK(scaled_up(std::string(40, '9'), 1) == RoundedCount{.fault = DecimalFault::TooLarge});
  CHECK(scaled_up("1e999999999999999999999", 1) == RoundedCount{.fault = DecimalFault::TooLarge});
  CHECK(scaled_up("-1", 1) == RoundedCount{.fault = DecimalFault::Negative});
  CHECK(scaled_up("-1e-999999999999999999999", 1) == RoundedCount{.fault = DecimalFault::Negative});
  CHECK(scaled_up("-1e99", 1) == RoundedCount{.fault = DecimalFault::Negative});
}

TEST_CASE("a scale out of range is a mistake of the caller") {
  CHECK_THROWS_AS(scaled_exactly("1", 0), Bug);
  CHECK_THROWS_AS(scaled_up("1", kLargestScale + 1), Bug);
}

TEST_CASE("multiples agree with integer arithmetic, however the number is spelled") {
  small::Dice dice(20260);
  int exact = 0;
  int rounded = 0;
  for (int instance = 0; instance < 20'000; ++instance) {
    // Numerator and denominator of the multiple: below 10^(17 + 12 + 6) and up to 10^12.
    const std::int64_t count =
        dice.roll(0, static_cast<std::int64_t>(power_of_ten(dice.roll(0, 17))));
    const std::int64_t exponent = dice.roll(-12, 6);
    const std::int64_t scale = instance % 2 == 0
                                   ? static_cast<std::int64_t>(power_of_ten(dice.roll(0, 12)))
                                   : dice.roll(1, kLargestScale);
    const Wide numerator = Wide{count} * scale * power_of_ten(exponent > 0 ? exponent : 0);
    const Wide denominator = power_of_ten(exponent < 0 ? -exponent : 0);
    const std::string text = spell(count, exponent, static_cast<std::size_t>(dice.roll(0, 25)));
    INFO(text << " times " << scale);

    const bool is_whole = numerator % denominator == 0;
    CHECK(scaled_exactly(text, scale) ==
          (is_whole ? std::optional{numerator / denominator} : std::nullopt));
    const Wide least_count = (numerator + denominator - 1) / denominator;
    if (least_count <= kMaxCount) {
      CHECK(scaled_up(text, scale) ==
            RoundedCount{.count = static_cast<std::int64_t>(least_count)});
      ++(is_whole ? exact : rounded);
    } else {
      CHECK(scaled_up(text, scale) == RoundedCount{.fault = DecimalFault::TooLarge});
    }
  }
  CHECK(exact > 1'000);
  CHECK(rounded > 1'000);
}
