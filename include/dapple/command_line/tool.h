// A command line tool with several commands: selects the command, parses its options, prints help,
// results and errors. Each command has a file of its own in its tool's module.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "dapple/command_line/console.h"
#include "dapple/command_line/description.h"
#include "dapple/command_line/options.h"
#include "dapple/core/error.h"

namespace dapple::command_line {

inline constexpr int kDone = 0;
inline constexpr int kBug = 1;
inline constexpr int kUsage = 2;
inline constexpr int kBadInput = 3;
inline constexpr int kInfeasible = 4;
inline constexpr int kEnvironment = 5;
/// Nothing is false, but not everything is confirmed; or, in `train --verify`, gradients or losses
/// differ by more than rounding.
inline constexpr int kNotVerified = 6;

/// One command of a tool. `run` writes results and messages to the console, may throw Error, and
/// returns an exit code.
struct Command {
  CommandDescription description;
  int (*run)(const Options& options, Console& console) = nullptr;
  /// The commands of two words, such as "import topology". If there are any, the second word names
  /// one of them, and this command itself has only its help.
  std::vector<Command> parts = {};
};

/// Prints an error with advice for the user.
using TellError = std::function<void(const Error& error)>;

struct Tool {
  ToolDescription description;
  /// The text for --version, which includes the formats that are read and written.
  std::string version;
  std::vector<Command> commands;
  /// Whether options without a command are those of the first command.
  bool first_is_default = false;
  /// Called on a fatal error. If this process is one of several, it ends all of them, this one with
  /// the exit code of the error, and one of them reports it; otherwise it returns.
  void (*end_with_others)(const Error& error, const TellError& tell) = nullptr;
};

/// Prints each violation of an error on a line after "error: ".
void print_error(Console& console, const Error& error);

/// Prints "warning: " and the text, on a terminal wrapped to its width.
void print_warning(Console& console, const std::string& text);

/// Prints warnings that are otherwise part of a summary, which --quiet hides.
void print_warnings_if_quiet(Console& console, const std::vector<std::string>& texts);

int exit_code_of(ErrorKind kind);

/// Runs a tool; `arguments` are without the program's name. Throws nothing: every fault becomes a
/// line on `err` and an exit code: 1 for a bug of ours, 2 usage, 3 bad input, 5 environment;
/// otherwise returns what the command returns.
int run_tool(const Tool& tool, const std::vector<std::string>& arguments, std::ostream& out,
             std::ostream& err);

}  // namespace dapple::command_line
