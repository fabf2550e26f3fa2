#include "dapple/report/show.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <utility>

namespace dapple::report {
namespace {

struct Unit {
  std::int64_t size;
  const char* name;
};

constexpr std::array<Unit, 4> kTimes{
    {{1, "ns"}, {1'000, "us"}, {1'000'000, "ms"}, {kNanosecondsPerSecond, "s"}}};
constexpr std::array<Unit, 6> kSizes{{{1, "B"},
                                      {std::int64_t{1} << 10, "KiB"},
                                      {std::int64_t{1} << 20, "MiB"},
                                      {std::int64_t{1} << 30, "GiB"},
                                      {std::int64_t{1} << 40, "TiB"},
                                      {std::int64_t{1} << 50, "PiB"}}};

/// The precision of figures: the number of significant digits, the most decimals, and the value
/// from which the next larger unit is used.
struct Digits {
  std::int64_t limit = 1000;
  int significant = 4;
  int decimals = 3;
};
constexpr Digits kTimeDigits{.limit = 1000, .significant = 4, .decimals = 3};
constexpr Digits kSizeDigits{.limit = 1024, .significant = 3, .decimals = 2};

/// A figure in a unit, rounded to nearest: scaled / 10^decimals.
struct Rounded {
  std::int64_t scaled = 0;
  int decimals = 0;
  std::int64_t power = 1;  // 10^decimals
};

Rounded rounded(std::int64_t count, const Unit& unit, const Digits& digits) {
  Rounded result;
  if (unit.size > 1) {
    const std::int64_t whole = count / unit.size;
    const int whole_digits = whole >= 1000 ? 4 : whole >= 100 ? 3 : whole >= 10 ? 2 : 1;
    result.decimals = std::clamp(digits.significant - whole_digits, 0, digits.decimals);
  }
  for (int digit = 0; digit < result.decimals; ++digit) result.power *= 10;
  result.scaled = divide_down(Wide{count} * result.power * 2 + unit.size, Wide{unit.size} * 2);
  return result;
}

std::string with_unit(const Rounded& number, const Unit& unit) {
  if (number.decimals == 0) return fmt::format("{} {}", number.scaled, unit.name);
  return fmt::format("{}.{:0{}} {}", number.scaled / number.power, number.scaled % number.power,
                     number.decimals, unit.name);
}

/// Returns the first unit in which `count` rounds to less than the limit, or the last one. The
/// rounded value is compared, so that 999.96 becomes 1.000 of the next unit, not 1000.0 of this
/// one.
const Unit& unit_of(std::int64_t count, std::span<const Unit> units, const Digits& digits) {
  for (const Unit& unit : units) {
    const Rounded number = rounded(count, unit, digits);
    if (number.scaled < digits.limit * number.power) return unit;
  }
  return units.back();
}

/// Formats `count` in `unit`, however large or small it is: "76,130 ms", "<0.001 ms".
std::string in_unit(std::int64_t count, const Unit& unit, const Digits& digits) {
  const Rounded number = rounded(count, unit, digits);
  if (count > 0 && number.scaled == 0) {
    return fmt::format("<{}", with_unit({1, digits.decimals, number.power}, unit));
  }
  constexpr std::int64_t kSeparated = 10'000;
  if (number.decimals == 0 && number.scaled >= kSeparated) {
    return fmt::format("{} {}", show_count(number.scaled), unit.name);
  }
  return count == 0 ? fmt::format("0 {}", unit.name) : with_unit(number, unit);
}

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

/// Calls `visit(begin, end)` for each character of `text` that takes a column.
template <class Visit>
void for_each_column(std::string_view text, Visit visit) {
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '\x1b') {
      const std::size_t end = text.find('m', i);
      i = end == std::string_view::npos ? text.size() : end + 1;
      continue;
    }
    std::size_t end = i + 1;
    while (end < text.size() && is_continuation(text[end])) ++end;
    visit(i, end);
    i = end;
  }
}

struct ServerShare {
  ServerIndex server;
  std::vector<std::int32_t> numbers;
};

/// Returns the position of a server in its group, which is the number in its name.
std::int32_t number_in_group(ServerIndex server, const Topology& topology) {
  std::int32_t number = 0;
  for (ServerIndex other{0}; other < server; other = other.next()) {
    if (topology.server(other).group == topology.server(server).group) ++number;
  }
  return number;
}

}  // namespace

std::string show(Duration time) {
  if (time.ns < 0) return "-" + show(Duration{-time.ns});
  if (time.ns == 0) return "0 s";
  const Unit& unit = unit_of(time.ns, kTimes, kTimeDigits);
  return with_unit(rounded(time.ns, unit, kTimeDigits), unit);
}

std::string show(Duration time, Duration whole) {
  if (whole.ns == 0) return show(time);
  if (time.ns < 0) return "-" + show(Duration{-time.ns}, whole);
  return in_unit(time.ns, unit_of(std::abs(whole.ns), kTimes, kTimeDigits), kTimeDigits);
}

std::string show(Bytes size) {
  if (size.count < 0) return "-" + show(Bytes{-size.count});
  const Unit& unit = unit_of(size.count, kSizes, kSizeDigits);
  return with_unit(rounded(size.count, unit, kSizeDigits), unit);
}

std::string show(Bytes size, Bytes whole) {
  if (size.count < 0) return "-" + show(Bytes{-size.count}, whole);
  return in_unit(size.count, unit_of(std::abs(whole.count), kSizes, kSizeDigits), kSizeDigits);
}

std::string show_percent(double fraction) {
  return fmt::format("{:.1f} %", 100 * fraction);
}

std::string show_count(std::int64_t count) {
  std::string digits = fmt::format("{}", count);
  for (auto place = static_cast<std::int64_t>(digits.size()) - 3; place > (count < 0 ? 1 : 0);
       place -= 3) {
    digits.insert(static_cast<std::size_t>(place), ",");
  }
  return digits;
}

std::string show_rate(double per_second) {
  if (!(per_second < 1e15)) return fmt::format("{:.4g}", per_second);
  if (per_second >= 999.95) return show_count(std::llround(per_second));
  return fmt::format("{:.{}f}", per_second,
                     per_second >= 99.995   ? 1
                     : per_second >= 9.9995 ? 2
                                            : 3);
}

std::string show_numbers(const std::vector<std::int32_t>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text +=
        last == i ? fmt::format("{}", numbers[i]) : fmt::format("{}-{}", numbers[i], numbers[last]);
    i = last + 1;
  }
  return text;
}

std::string show_devices(const std::vector<DeviceIndex>& devices, const Topology& topology) {
  std::vector<DeviceIndex> sorted = devices;
  std::sort(sorted.begin(), sorted.end());
  const std::int64_t servers = topology.description().servers_of_group;
  std::vector<ServerShare> shares;
  for (DeviceIndex index : sorted) {
    const Device& device = topology.device(index);
    if (shares.empty() || shares.back().server != device.server) {
      shares.push_back({.server = device.server, .numbers = {}});
    }
    // A group of several servers has these numbers in each of them.
    const auto group = static_cast<std::int32_t>(topology.description().group_size / servers);
    for (std::int32_t i = 0; i < group; ++i) {
      shares.back().numbers.push_back(device.number * group + i);
    }
  }
  std::string text;
  for (std::size_t i = 0; i < shares.size();) {
    const Server& first = topology.server(shares[i].server);
    std::size_t last = i;
    while (last + 1 < shares.size() && shares[last + 1].numbers == shares[i].numbers &&
           shares[last + 1].server == shares[last].server.next() &&
           topology.server(shares[last + 1].server).group == first.group) {
      ++last;
    }
    if (!text.empty()) text += ", ";
    const std::int64_t first_number = number_in_group(shares[i].server, topology) * servers;
    const std::int64_t last_number =
        (number_in_group(shares[last].server, topology) + 1) * servers - 1;
    text += fmt::format("{}{}", printable(topology.group_of(shares[i].server).name), first_number);
    if (last_number > first_number) text += fmt::format("-{}", last_number);
    text += ':' + show_numbers(shares[i].numbers);
    i = last + 1;
  }
  return text;
}

std::string show_device_count(std::size_t count, const Topology& topology) {
  const std::int64_t group = topology.description().group_size;
  return group == 1 ? fmt::format("{}", count) : fmt::format("{}x{}", count, group);
}

std::string show_parallelism(const Plan& plan) {
  if (!plan.stage_forms.empty()) {
    return fmt::format("{} forms of parallelism", plan.stage_forms.size() + 1);
  }
  return plan.parallelism.is_none() ? "" : to_text(plan.parallelism);
}

std::string show_ways(const Plan& plan) {
  std::string text{to_string(plan.family)};
  const std::string parallelism = show_parallelism(plan);
  if (!parallelism.empty()) text += ", " + parallelism;
  if (plan.skip_tensors == SkipTensors::Direct) text += ", direct skip tensors";
  if (plan.boundaries == Boundaries::ScatterGather) text += ", scatter-gather boundaries";
  return text;
}

std::string show_forms(const ParallelismRecord& record) {
  if (record.stage_forms.empty()) return short_text(record.parallelism);
  const Parallelism& form = record.parallelism;
  const std::int64_t size = form.group_size();
  std::int64_t largest = size;
  for (const Parallelism& other : record.stage_forms) {
    largest = std::max(largest, other.group_size());
  }
  std::string groups = size == 1 ? "devices alone" : fmt::format("groups of {}", size);
  if (largest > size) groups = fmt::format("groups of {} to {}", size, largest);
  return fmt::format("any of {} forms on {}{}", record.stage_forms.size() + 1, groups,
                     form.shards_optimizer ? ", sharded" : "");
}

std::string show_layers(LayerRange layers, const ModelProfile& profile) {
  const auto name = [&profile](std::int32_t layer) {
    return printable(profile.layers[static_cast<std::size_t>(layer)].name);
  };
  const std::string first = name(layers.begin);
  if (layers.size() == 1) return first;
  std::string last = name(layers.end - 1);
  const std::size_t dot = first.rfind('.');
  if (dot != std::string::npos && last.compare(0, dot + 1, first, 0, dot + 1) == 0) {
    last.erase(0, dot + 1);
  }
  return first + ".." + last;
}

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  for_each_column(text, [&width](std::size_t, std::size_t) { ++width; });
  return width;
}

std::string shorten(std::string_view text, std::size_t width, const TextStyle& style) {
  const std::size_t length = display_width(text);
  if (length <= width) return std::string{text};
  const std::string_view mark = style.unicode ? "…" : "~";
  if (width <= 1) return std::string{width == 0 ? "" : mark};
  const std::size_t head = width / 2;
  const std::size_t tail_begin = length - (width - 1 - head);
  std::string result;
  std::size_t column = 0;
  for_each_column(text, [&](std::size_t begin, std::size_t end) {
    if (column == head) result += mark;
    if (column < head || column >= tail_begin) result += text.substr(begin, end - begin);
    ++column;
  });
  return result;
}

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Whether a line may end before `text[i]`, which is neither inside a character nor inside a number
/// with its decimal point and separators. Requires: i > 0.
bool may_break(std::string_view text, std::size_t i) {
  if (is_continuation(text[i])) return false;
  const auto joins = [](char c) { return is_digit(c) || c == '.' || c == ','; };
  const bool is_range = text[i] == '.' && (text[i - 1] == '.' || text.substr(i, 2) == "..");
  if (is_range) return text[i - 1] != '.';
  return !joins(text[i - 1]) || !joins(text[i]) || (!is_digit(text[i - 1]) && !is_digit(text[i]));
}

/// Returns the end of the first line of a text that is too wide: the last break between parts
/// within `width` columns, else the last other break there, else the first break after them.
std::size_t line_end(std::string_view text, std::size_t width) {
  enum Kind { None, Anywhere, BetweenParts };
  Kind best = None;
  std::size_t end = text.size();
  std::size_t column = 0;
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (is_continuation(text[i])) continue;
    ++column;  // the number of columns before text[i]
    if (column > width && best != None) break;
    if (!may_break(text, i)) continue;
    const Kind kind = text[i] == ' ' || text.substr(i, 2) == ".." ? BetweenParts : Anywhere;
    if (kind >= best) {
      best = kind;
      end = i;
    }
    if (column > width) break;
  }
  return end;
}

}  // namespace

std::vector<std::string> wrap(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  while (display_width(text) > width) {
    const std::size_t end = line_end(text, width);
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  }
  if (!text.empty() || lines.empty()) lines.emplace_back(text);
  return lines;
}

std::string fill_lines(std::string_view text, std::size_t indent, const TextStyle& style) {
  const auto width = static_cast<std::size_t>(std::max(style.width, 1));
  std::string result;
  std::size_t column = indent;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    if (!word.empty()) {
      const std::size_t length = display_width(word);
      if (column > indent && column + 1 + length > width) {
        result += '\n' + std::string(indent, ' ');
        column = indent;
      } else if (column > indent) {
        result += ' ';
        ++column;
      }
      result += word;
      column += length;
    }
    begin = end + 1;
  }
  return result;
}

std::string paint(std::string_view text, Ink ink, const TextStyle& style) {
  if (!style.color || ink == Ink::Plain || text.empty()) return std::string{text};
  static constexpr std::array<const char*, 6> kCodes{"0", "1", "2", "32", "33", "31;1"};
  return fmt::format("\x1b[{}m{}\x1b[0m", kCodes[static_cast<std::size_t>(ink)], text);
}

}  // namespace dapple::report
