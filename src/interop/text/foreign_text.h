// Splits text of other tools into lines and words, and reports the faults of its lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dapple::interop {

inline constexpr std::string_view kBlanks = " \t\r\v\f";

std::string_view trim(std::string_view text);

/// Returns the parts between the separators, including empty ones; the whole text if there is no
/// separator. O(length).
std::vector<std::string_view> split(std::string_view text, std::string_view separator);

/// Returns the words between blanks (kBlanks, which do not include line feeds). O(length).
std::vector<std::string_view> words_of(std::string_view text);

bool begins_with(std::string_view text, std::string_view prefix);

/// Parses a whole number of at most nine digits; returns nothing for any other text.
std::optional<std::int32_t> parse_count(std::string_view text);

/// Returns "b.txt" for "a/b.txt". The source that a topology names must not depend on the folder of
/// the file.
std::string base_name(std::string_view path);

/// Returns the text as messages may show it: '?' replaces what is not printable ASCII, and "..."
/// everything after 60 characters.
std::string shown(std::string_view text);

/// A fault of a line, counted from 1, or of the whole text if `line` is 0.
struct LineFault {
  std::int64_t line = 0;
  std::string message;
};

/// Throws Error(BadInput) with the first 100 faults, ordered by line, and the number of the others.
/// Does nothing if there are none.
void throw_faults(std::vector<LineFault> faults, const std::string& source_name);

}  // namespace dapple::interop
