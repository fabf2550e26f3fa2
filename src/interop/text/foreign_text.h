// Text of other tools in lines and words, and what is wrong with its lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dapple::interop {

inline constexpr std::string_view kBlanks = " \t\r\v\f";

std::string_view trim(std::string_view text);

/// Parts between the separators, empty ones too; the whole text where there is none. O(length).
std::vector<std::string_view> split(std::string_view text, std::string_view separator);

/// What stands between blanks. O(length).
std::vector<std::string_view> words_of(std::string_view text);

bool begins_with(std::string_view text, std::string_view prefix);

/// A whole number of at most nine digits, or nothing.
std::optional<std::int32_t> parse_count(std::string_view text);

/// "b.txt" of "a/b.txt": what a topology says of its source must not depend on where that lay.
std::string base_name(std::string_view path);

/// What a message may show of a foreign text: printable ASCII, at most 60 characters.
std::string shown(std::string_view text);

/// What is wrong with a line, or with the whole text if `line` is 0.
struct LineFault {
  std::int64_t line = 0;
  std::string message;
};

/// Throws Error(BadInput) with all faults, by line; of very many only the first. Nothing where
/// there are none.
void throw_faults(std::vector<LineFault> faults, const std::string& source_name);

}  // namespace dapple::interop
