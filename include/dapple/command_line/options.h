// The options of one command: what it takes, what was given, and what is wrong with it.
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

/// The usage error of one option; exit code 2.
Error usage_error(const std::string& option, const std::string& message);

class Options {
 public:
  /// Throws Error(Usage): an unknown option (with the nearest valid one), one given twice that does
  /// not repeat, a missing value. --help, --verbose and --quiet belong to every command.
  Options(const std::vector<std::string>& arguments, std::vector<OptionSpec> specs);

  bool has(const std::string& name) const { return values_.count(name) > 0; }
  std::optional<std::string> text(const std::string& name) const;
  /// All values of an option that repeats, in the order given.
  std::vector<std::string> texts(const std::string& name) const;
  const std::vector<std::string>& positional() const { return positional_; }
  /// Throws Error(Usage) where anything but options was given. `example`: "--plan FILE".
  void require_options_only(const std::string& example) const;
  /// The one file that is given by itself or, as well, as the option `name`. Throws Error(Usage)
  /// where there is none, or more than one; `what`: "a plan file".
  std::string only_file(const std::string& name, const std::string& what) const;

  /// All throw Error(Usage) where the value is not of that kind. Numbers that need not be whole may
  /// be written as "0.001" or "1e-3".
  std::string required(const std::string& name, const std::string& what) const;
  std::optional<std::int64_t> positive_integer(const std::string& name, std::int64_t most) const;
  std::optional<Factor> positive_factor(const std::string& name) const;
  /// Of a decimal number of seconds. Up to nine decimals, at most a million.
  std::optional<Duration> positive_seconds(const std::string& name) const;
  /// At least 0 and below 1, as "0.01" or "1%".
  std::optional<Factor> fraction(const std::string& name) const;
  /// A number of bytes with its unit, "25 MiB"; above zero.
  std::optional<Bytes> size(const std::string& name) const;
  /// What files may have as a name: 1 to 200 characters, none of them a control character.
  std::optional<std::string> name(const std::string& name) const;
  /// Whether it is `word`, which may stand in the place of another kind of value. Throws
  /// Error(Usage) where it is nearly that word.
  bool is_word(const std::string& name, const std::string& word) const;
  /// One of `choices`, the first if not given. Another word is refused with the nearest of them.
  std::string choice(const std::string& name, const std::vector<std::string>& choices) const;

 private:
  std::map<std::string, std::vector<std::string>> values_;
  std::vector<std::string> positional_;
};

/// A number above zero with at most nine decimals, at most 1000, as "0.001" or "1e-3"; nothing if
/// it is none.
std::optional<Factor> parse_factor(std::string_view text);

/// The candidate with the fewest edits to `word`, whatever their case, the first of equals; nothing
/// if none is near: more than a third of the word's letters, or half of the longer one's.
std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates);

}  // namespace dapple::command_line
