// What users read of a tool and of its commands: the source of help texts, manual pages and
// completions.
#pragma once

#include <string>
#include <vector>

#include "dapple/command_line/options.h"

namespace dapple::command_line {

struct ExitCode {
  int code = 0;
  /// A clause without a full stop, such as "no plan fits".
  std::string meaning;
};

/// A term, such as a file or an environment variable, and sentences about it.
struct Explanation {
  std::string term;
  std::string text;
};

struct CommandDescription {
  /// The last word of the command's name, such as "topology" for "import topology".
  std::string name;
  /// What the command does, such as "search for the fastest plan that fits memory".
  std::string summary;
  /// Whole command lines, with placeholders.
  std::vector<std::string> usage;
  /// Two or three sentences, which help shows too.
  std::string about = {};
  /// Further paragraphs, which only the manual page has.
  std::vector<std::string> details = {};
  /// A list of words that the command knows, such as its targets, and its title.
  std::string terms_title = {};
  std::vector<Explanation> terms = {};
  bool takes_files = false;
  std::vector<OptionSection> options = {};
  /// Lines of a shell, each as it is typed.
  std::vector<std::string> examples = {};
  /// The codes that mean something particular for this command.
  std::vector<ExitCode> exit_codes = {};
  std::vector<Explanation> files = {};
};

struct ToolDescription {
  std::string name;  // "dapple-plan"
  std::string summary;
  std::vector<std::string> usage;
  std::string about;
  /// Further paragraphs, which only the manual page has.
  std::vector<std::string> details = {};
  /// Names of options of the first command that the tool's help lists.
  std::vector<std::string> first_options = {};
  std::vector<std::string> examples;
  /// The codes of all commands, in ascending order.
  std::vector<ExitCode> exit_codes;
  std::vector<Explanation> environment = {};
  /// Manual pages of other tools, such as "dapple-exec".
  std::vector<std::string> see_also = {};
};

/// Returns the options of all sections, in their order.
std::vector<OptionSpec> all_options(const CommandDescription& description);

}  // namespace dapple::command_line
