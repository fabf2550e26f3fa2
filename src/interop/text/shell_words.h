// Splits a shell script into words, as far as lists of options need it: with quotes, comments and
// escaped line ends, but without expansions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dapple::interop {

struct ShellWord {
  std::int64_t line = 0;  // from 1
  std::string text;       // without quotes
};

/// Returns the words between blanks, line ends and parentheses, without expanding anything. A quote
/// that is not closed extends to the end of the text. O(length).
std::vector<ShellWord> shell_words(std::string_view text);

/// The value of an option, given as "--name value" or "--name=value".
struct ShellOption {
  std::int64_t line = 0;
  std::string value;
};

/// The options of a script. Repeated options must have the same value.
class ShellOptions {
 public:
  ShellOptions(std::string_view text, std::string source)
      : words_(shell_words(text)), source_(std::move(source)) {}

  /// Returns the option, or nothing if it does not occur. Throws Error(BadInput) if it has no value
  /// or two different ones.
  std::optional<ShellOption> value(std::string_view name) const;

  /// Returns the option's value as a whole number, or nothing if it does not occur. Throws
  /// Error(BadInput) if the value is not a whole number of at least 1.
  std::optional<std::int64_t> count(std::string_view name) const;

  /// Returns the words behind the option up to the next option; none if it does not occur.
  std::vector<std::string> values(std::string_view name) const;

  /// Whether the option occurs, with a value or without.
  bool has(std::string_view name) const { return line_of(name) > 0; }
  /// Returns the line of the option, or 0 if it does not occur.
  std::int64_t line_of(std::string_view name) const;

  /// Throws Error(BadInput) with the message for a line, or for the whole script if `line` is 0.

  [[noreturn]] void refuse(std::int64_t line, std::string message) const;

 private:
  std::vector<ShellWord> words_;
  std::string source_;
};

}  // namespace dapple::interop
