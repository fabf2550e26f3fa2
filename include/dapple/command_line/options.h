// The options of one command: parsing and validation.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/core/quantity.h"

namespace dapple::command_line {

struct OptionSpec {
  std::string name;  // "model" for --model
  char letter = 0;   // 'o' for -o
  bool takes_value = true;
  bool repeats = false;  // may be given several times
};

/// Returns the usage error of one option; exit code 2.
Error usage_error(const std::string& option, const std::string& message);

class Options {
 public:
  /// Throws Error(Usage) for an unknown option (naming the nearest valid one), a repeated option
  /// that may not be repeated, a missing value, or --quiet with --verbose. Every command has
  /// --help,
  /// --verbose and --quiet.
  Options(const std::vector<std::string>& arguments, std::vector<OptionSpec> specs);

  bool has(const std::string& name) const { return values_.count(name) > 0; }
  std::optional<std::string> text(const std::string& name) const;
  /// Returns all values of an option that may be repeated, in the order given.
  std::vector<std::string> texts(const std::string& name) const;
  const std::vector<std::string>& positional() const { return positional_; }
  /// Throws Error(Usage) if anything but options was given. `example`: "--plan FILE".
  void require_options_only(const std::string& example) const;
  /// Returns the one file that is given as an argument or as the option `name`. Throws Error(Usage)
  /// if there is none or more than one; `what`: "a plan file".
  std::string only_file(const std::string& name, const std::string& what) const;

  // Functions for values of one kind. They return nothing if the option was not given, and throw
  // Error(Usage) if the value is of another kind. Numbers that need not be whole may be written as
  // "0.001" or "1e-3".

  /// Throws Error(Usage) if the option was not given.
  std::string required(const std::string& name, const std::string& what) const;
  std::optional<std::int64_t> positive_integer(const std::string& name, std::int64_t most) const;
  std::optional<Factor> positive_factor(const std::string& name) const;
  /// Returns a decimal number of seconds with up to nine decimals, above zero and at most a
  /// million.
  std::optional<Duration> positive_seconds(const std::string& name) const;
  /// Returns a number of at least 0 and below 1, written as "0.01" or "1%".
  std::optional<Factor> fraction(const std::string& name) const;
  /// Returns a number of bytes given with its unit, such as "25 MiB"; above zero.
  std::optional<Bytes> size(const std::string& name) const;
  /// Returns a name as our files may have it: 1 to 200 characters, none of them a control
  /// character.
  std::optional<std::string> name(const std::string& name) const;
  /// Whether the value is `word`, which may be given instead of another kind of value. Throws
  /// Error(Usage) if it is nearly that word.
  bool is_word(const std::string& name, const std::string& word) const;
  /// Returns one of `choices`, the first if the option was not given. The error for another word
  /// names the nearest choice.
  std::string choice(const std::string& name, const std::vector<std::string>& choices) const;

 private:
  std::map<std::string, std::vector<std::string>> values_;
  std::vector<std::string> positional_;
};

/// Parses a number above zero and at most 1000, with at most nine decimals, such as "0.001" or
/// "1e-3"; returns nothing if the text is not such a number.
std::optional<Factor> parse_factor(std::string_view text);

/// Returns the candidate with the smallest edit distance to `word`, ignoring case; of equals the
/// first. Returns nothing if none is near: the distance may be at most a third of the word's length
/// (but 2 is always allowed) and at most half of the length of the longer of the two.
std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates);

}  // namespace dapple::command_line
