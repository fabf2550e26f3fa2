#include "interop/text/foreign_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "dapple/core/error.h"

namespace dapple::interop {

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t end = text.find(separator, begin);
    if (end == std::string_view::npos) break;
    parts.push_back(text.substr(begin, end - begin));
    begin = end + separator.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t begin = text.find_first_not_of(kBlanks); begin != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kBlanks, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(kBlanks, end);
  }
  return words;
}

bool begins_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

std::optional<std::int32_t> parse_count(std::string_view text) {
  if (text.empty() || text.size() > 9) return std::nullopt;
  std::int32_t number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + (c - '0');
  }
  return number;
}

std::string base_name(std::string_view path) {
  return shown(path.substr(path.rfind('/') + 1));
}

std::string shown(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  std::string result;
  for (const char c : text.substr(0, kLongest)) result += c >= ' ' && c <= '~' ? c : '?';
  if (text.size() > kLongest) result += "...";
  return result;
}

void throw_faults(std::vector<LineFault> faults, const std::string& source_name) {
  if (faults.empty()) return;
  constexpr std::size_t kMostReported = 100;
  std::stable_sort(faults.begin(), faults.end(),
                   [](const LineFault& a, const LineFault& b) { return a.line < b.line; });
  std::vector<Violation> violations;
  for (std::size_t i = 0; i < std::min(faults.size(), kMostReported); ++i) {
    violations.push_back({faults[i].line > 0 ? fmt::format("line {}", faults[i].line) : "",
                          std::move(faults[i].message)});
  }
  if (faults.size() > kMostReported) {
    violations.push_back({"", fmt::format("{} more faults", faults.size() - kMostReported)});
  }
  throw Error(ErrorKind::BadInput, source_name, std::move(violations));
}

}  // namespace dapple::interop
