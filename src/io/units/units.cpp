#include "io/units/units.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <vector>

#include "dapple/core/decimal.h"
#include "dapple/io/units/quantity_text.h"
#include "io/json/number_text.h"

namespace dapple::io {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t multiple = 1;  // of the base unit
};

constexpr std::array<Unit, 8> kPrefixes{{{"", 1},
                                         {"k", 1'000},
                                         {"M", 1'000'000},
                                         {"G", 1'000'000'000},
                                         {"T", 1'000'000'000'000},
                                         {"Ki", std::int64_t{1} << 10},
                                         {"Mi", std::int64_t{1} << 20},
                                         {"Gi", std::int64_t{1} << 30}}};

// Microseconds may be written with the micro sign or the Greek letter, which look the same.
constexpr std::array<Unit, 6> kTimes{{{"ns", 1},
                                      {"us", 1'000},
                                      {"\xc2\xb5s", 1'000},
                                      {"\xce\xbcs", 1'000},
                                      {"ms", 1'000'000},
                                      {"s", 1'000'000'000}}};

/// The parts of a quantity such as "12.5 GB/s".
struct Quantity {
  std::string_view number;
  std::string_view unit;
};

std::optional<Quantity> split(std::string_view text) {
  const std::size_t blank = text.find(' ');
  if (blank == std::string_view::npos) return std::nullopt;
  const Quantity quantity{text.substr(0, blank), text.substr(blank + 1)};
  return is_plain_decimal(quantity.number) ? std::optional(quantity) : std::nullopt;
}

std::optional<std::int64_t> find_prefix(std::string_view unit, std::string_view base) {
  for (const Unit& prefix : kPrefixes)
    if (unit.size() == prefix.name.size() + base.size() &&
        unit.substr(0, prefix.name.size()) == prefix.name &&
        unit.substr(prefix.name.size()) == base)
      return prefix.multiple;
  return std::nullopt;
}

struct BandwidthUnit {
  std::int64_t multiple = 1;
  std::int64_t divisor = 1;  // 8 for bits
};

/// Finds a unit such as "GB/s", "GBps", "Gbit/s", "Gb/s" or "Gbps"; a capital B means bytes.
std::optional<BandwidthUnit> find_bandwidth(std::string_view unit) {
  for (const std::string_view bytes : {"B/s", "Bps"}) {
    if (const auto multiple = find_prefix(unit, bytes)) return BandwidthUnit{*multiple, 1};
  }
  for (const std::string_view bits : {"bit/s", "b/s", "bps"}) {
    if (const auto multiple = find_prefix(unit, bits)) return BandwidthUnit{*multiple, 8};
  }
  return std::nullopt;
}

std::optional<std::int64_t> find_time(std::string_view unit) {
  for (const Unit& time : kTimes)
    if (unit == time.name) return time.multiple;
  return std::nullopt;
}

struct Expected {
  // The quantity in words, with an example and the possible units.
  std::string_view quantity;
  // The name of the base unit.
  std::string_view base_unit;
  std::string_view symbol;
  std::int64_t least = 0;
};

/// Returns `count` if it is whole and in range; otherwise records a violation and returns nothing.
std::optional<std::int64_t> check_count(const Field& field, std::optional<Wide> count,
                                        const Expected& expected) {
  if (count && *count >= expected.least && *count <= kMaxCount)
    return static_cast<std::int64_t>(*count);
  field.refuse(fmt::format("a whole number of {} from {} {} to {} {}", expected.base_unit,
                           expected.least, expected.symbol, kMaxCount, expected.symbol));
  return std::nullopt;
}

/// Returns the parts of a field's text, or nothing, without a violation, if it is not a number with
/// a unit.
std::optional<Quantity> find_quantity(const Field& field) {
  const JsonValue* value = field.value_of_kind(JsonValue::Kind::Text);
  return value == nullptr ? std::nullopt : split(value->text);
}

/// Formats `count` in the largest unit in which it has an integer part and at most three decimals,
/// or in the first unit. Requires: units are in ascending order.
std::string in_largest(std::int64_t count, const std::vector<Unit>& units) {
  std::string text = fmt::format("{} {}", count, units.front().name);
  for (const Unit& unit : units) {
    const bool has_three_decimals =
        count % (unit.multiple < 1'000 ? 1 : unit.multiple / 1'000) == 0;
    if (count >= unit.multiple && has_three_decimals)
      text = fmt::format("{} {}", decimal_text(count, unit.multiple), unit.name);
  }
  return text;
}

}  // namespace

std::optional<Bandwidth> read_bandwidth(const Field& field) {
  constexpr Expected kExpected{
      "a bandwidth such as \"25 Gbit/s\" or \"130 GB/s\" (B/s or bit/s with k, M, G, T, Ki, Mi or "
      "Gi)",
      "bytes per second", "B/s", 1};
  const std::optional<Quantity> quantity = find_quantity(field);
  const auto unit = quantity ? find_bandwidth(quantity->unit) : std::nullopt;
  if (!unit) {
    field.refuse(kExpected.quantity);
    return std::nullopt;
  }
  std::optional<Wide> count = scaled_exactly(quantity->number, unit->multiple);
  if (count) {
    count = *count % unit->divisor == 0 ? std::optional(*count / unit->divisor) : std::nullopt;
  }
  const std::optional<std::int64_t> checked = check_count(field, count, kExpected);
  return checked ? std::optional(Bandwidth{*checked}) : std::nullopt;
}

std::optional<Bytes> read_size(const Field& field, Bytes least) {
  const Expected expected{"a size such as \"16 GiB\" (B with k, M, G, T, Ki, Mi or Gi)", "bytes",
                          "B", least.count};
  const std::optional<Quantity> quantity = find_quantity(field);
  const auto multiple = quantity ? find_prefix(quantity->unit, "B") : std::nullopt;
  if (!multiple) {
    field.refuse(expected.quantity);
    return std::nullopt;
  }
  const std::optional<std::int64_t> checked =
      check_count(field, scaled_exactly(quantity->number, *multiple), expected);
  return checked ? std::optional(Bytes{*checked}) : std::nullopt;
}

std::optional<Duration> read_duration(const Field& field) {
  constexpr Expected kExpected{"a time such as \"5 us\" (ns, us, ms or s)", "nanoseconds", "ns", 0};
  const std::optional<Quantity> quantity = find_quantity(field);
  const auto multiple = quantity ? find_time(quantity->unit) : std::nullopt;
  if (!multiple) {
    field.refuse(kExpected.quantity);
    return std::nullopt;
  }
  const std::optional<std::int64_t> checked =
      check_count(field, scaled_exactly(quantity->number, *multiple), kExpected);
  return checked ? std::optional(Duration{*checked}) : std::nullopt;
}

std::optional<std::int64_t> read_rate(const Field& field) {
  constexpr std::int64_t kGiga = 1'000'000'000;
  const std::optional<Quantity> quantity = find_quantity(field);
  const auto multiple = quantity ? find_prefix(quantity->unit, "FLOP/s") : std::nullopt;
  const auto count = multiple ? scaled_exactly(quantity->number, *multiple) : std::nullopt;
  if (!count || *count < kGiga || *count / kGiga > kMaxCount) {
    field.refuse("a rate such as \"989.4 TFLOP/s\", at least 1 GFLOP/s");
    return std::nullopt;
  }
  return static_cast<std::int64_t>(*count / kGiga);
}

std::string bandwidth_text(Bandwidth bandwidth) {
  static const std::vector<Unit> kUnits{{"B/s", 1},
                                        {"kB/s", 1'000},
                                        {"MB/s", 1'000'000},
                                        {"GB/s", 1'000'000'000},
                                        {"TB/s", 1'000'000'000'000}};
  return in_largest(bandwidth.bytes_per_second, kUnits);
}

std::string size_text(Bytes size) {
  static const std::vector<Unit> kUnits{
      {"B", 1}, {"kB", 1'000}, {"MB", 1'000'000}, {"GB", 1'000'000'000}, {"TB", 1'000'000'000'000}};
  static const std::vector<Unit> kBinary{{"KiB", std::int64_t{1} << 10},
                                         {"MiB", std::int64_t{1} << 20},
                                         {"GiB", std::int64_t{1} << 30}};
  if (size.count == 0) return "0 B";
  std::string binary;
  for (const Unit& unit : kBinary)
    if (size.count % unit.multiple == 0)
      binary = fmt::format("{} {}", size.count / unit.multiple, unit.name);
  std::string decimal = in_largest(size.count, kUnits);
  // The binary text may be one letter longer because of the "i" of its unit.
  return !binary.empty() && binary.size() <= decimal.size() + 1 ? binary : decimal;
}

std::string duration_text(Duration duration) {
  static const std::vector<Unit> kUnits{
      {"ns", 1}, {"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}};
  return duration.ns == 0 ? "0 us" : in_largest(duration.ns, kUnits);
}

std::string rate_text(std::int64_t gigaflops_per_second) {
  static const std::vector<Unit> kUnits{{"GFLOP/s", 1}, {"TFLOP/s", 1'000}};
  return in_largest(gigaflops_per_second, kUnits);
}

}  // namespace dapple::io

namespace dapple::io {
namespace {

/// Returns the parts of a text such as "25 GB/s" or "25GB/s".
std::optional<Quantity> split_loosely(std::string_view text) {
  const std::size_t end = text.find_first_not_of("0123456789.");
  if (end == std::string_view::npos) return std::nullopt;
  const Quantity quantity{text.substr(0, end), text.substr(text[end] == ' ' ? end + 1 : end)};
  return is_plain_decimal(quantity.number) ? std::optional(quantity) : std::nullopt;
}

/// Returns `number` times `multiple` / `divisor`, or nothing if that is not an integer from 1 to
/// kMaxCount.
std::optional<std::int64_t> whole_count(std::string_view number, std::int64_t multiple,
                                        std::int64_t divisor) {
  const std::optional<Wide> count = scaled_exactly(number, multiple);
  if (!count || *count % divisor != 0) return std::nullopt;
  const Wide whole = *count / divisor;
  if (whole < 1 || whole > kMaxCount) return std::nullopt;
  return static_cast<std::int64_t>(whole);
}

}  // namespace

std::optional<Bytes> parse_size(std::string_view text) {
  const std::optional<Quantity> quantity = split_loosely(text);
  const auto multiple = quantity ? find_prefix(quantity->unit, "B") : std::nullopt;
  if (!multiple) return std::nullopt;
  const std::optional<std::int64_t> count = whole_count(quantity->number, *multiple, 1);
  return count ? std::optional(Bytes{*count}) : std::nullopt;
}

std::optional<Bandwidth> parse_bandwidth(std::string_view text) {
  const std::optional<Quantity> quantity = split_loosely(text);
  const auto unit = quantity ? find_bandwidth(quantity->unit) : std::nullopt;
  if (!unit) return std::nullopt;
  const std::optional<std::int64_t> count =
      whole_count(quantity->number, unit->multiple, unit->divisor);
  return count ? std::optional(Bandwidth{*count}) : std::nullopt;
}

}  // namespace dapple::io
