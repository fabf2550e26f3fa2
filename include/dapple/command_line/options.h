// The options of one command: their table, parsing and validation.
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

/// What a value names, so that shells can complete it.
enum class ValueKind { Text, File, Folder };

/// A row of a command's table of options, from which its parser, its help, its manual page and its
/// completions are made.
struct OptionSpec {
  /// The name without dashes, such as "model" for --model.
  std::string name;
  /// The letter of the short form, such as 'o' for -o; 0 if there is none.
  char letter = 0;
  /// The placeholder of the value, such as "FILE"; empty for a switch, which takes no value.
  std::string value = {};
  ValueKind kind = ValueKind::Text;
  /// The words that the value may be, or with which it may begin; empty if there are none.
  std::vector<std::string> choices = {};
  /// Whether the option may be given several times.
  bool repeats = false;
  /// One sentence with a full stop, in which "{}" stands for the choices.
  std::string text = {};
  /// What holds if the option is not given, such as "25 MiB"; empty if nothing needs to be said.
  std::string default_value = {};
  /// Further sentences, which only the manual page has.
  std::string details = {};
};

/// Options under a title, which is empty where none is needed.
struct OptionSection {
  std::string title;
  std::vector<OptionSpec> options;
  /// Whether help has only the names of these options; the manual page has all of them.
  bool is_brief = false;
};

/// Returns the options that every command has: --verbose, --quiet and --help.
std::vector<OptionSpec> common_options();

/// Returns the sentence of an option with its choices and its default.
std::string sentence_of(const OptionSpec& option);

/// Returns "a, b or c".
std::string list_of(const std::vector<std::string>& words);

/// Returns the parts of a list between its commas, which may be empty; the whole text if it has no
/// comma. O(length).
std::vector<std::string> parts_of_list(const std::string& list);

/// Returns the usage error of one option; exit code 2.
Error usage_error(const std::string& option, const std::string& message);

class Options {
 public:
  /// Throws Error(Usage) for an unknown option (naming the nearest valid one), a repeated option
  /// that may not be repeated, a missing value, or --quiet with --verbose. The common_options() are
  /// added to `specs`.
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
  /// Returns a decimal number with up to nine decimals, above zero and at most `most`, a whole
  /// number of at most 10^9.
  std::optional<Factor> positive_number(const std::string& name, std::int64_t most) const;
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
  /// Returns one of the choices in the option's row, the first if the option was not given. The
  /// error for another word names the nearest choice.
  std::string choice(const std::string& name) const;
  /// Returns one of `choices` instead, for choices that depend on the machine.
  std::string choice(const std::string& name, const std::vector<std::string>& choices) const;

 private:
  std::vector<OptionSpec> specs_;
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
