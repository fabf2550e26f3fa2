// The words of a shell script, as far as lists of options need them: quotes, comments, line ends.
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

/// Words between blanks, line ends and parentheses; nothing is expanded. A quote that is not closed
/// reaches to the end. O(length).
std::vector<ShellWord> shell_words(std::string_view text);

/// An option's value, "--name value" or "--name=value".
struct ShellOption {
  std::int64_t line = 0;
  std::string value;
};

/// The options of a list. What stands in it several times must say the same.
class ShellOptions {
 public:
  ShellOptions(std::string_view text, std::string source)
      : words_(shell_words(text)), source_(std::move(source)) {}

  /// Nothing where it is not there. Throws Error(BadInput) where it has two values, or none.
  std::optional<ShellOption> value(std::string_view name) const;

  /// A whole number from 1 on; throws Error(BadInput) where it is none.
  std::optional<std::int64_t> count(std::string_view name) const;

  /// Whether the word stands there, with a value or without.
  bool has(std::string_view name) const { return line_of(name) > 0; }
  /// Its line; 0 where it is not there.
  std::int64_t line_of(std::string_view name) const;

  [[noreturn]] void refuse(std::int64_t line, std::string message) const;

 private:
  std::vector<ShellWord> words_;
  std::string source_;
};

}  // namespace dapple::interop
