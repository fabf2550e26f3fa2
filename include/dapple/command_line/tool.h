// A tool with commands: which of them is meant, its options, help, and what becomes of its results
// and of its errors. Each command has a file of its own in its tool's module.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "dapple/command_line/console.h"
#include "dapple/command_line/options.h"
#include "dapple/core/error.h"

namespace dapple::command_line {

inline constexpr int kDone = 0;
inline constexpr int kBug = 1;
inline constexpr int kUsage = 2;
inline constexpr int kBadInput = 3;
inline constexpr int kInfeasible = 4;
inline constexpr int kEnvironment = 5;
inline constexpr int kNotVerified = 6;  // nothing is false, but not all is confirmed

/// Takes its arguments without its own name, writes results and errors to the console, throws
/// Error, and returns an exit code.
struct Command {
  std::string name;
  std::string help;
  std::vector<OptionSpec> options = {};
  int (*run)(const Options& options, Console& console) = nullptr;
  /// Commands of two words, "import topology": where there are some, the second word names one of
  /// them, and this one has nothing but its help.
  std::vector<Command> parts = {};
};

/// Writes an error where people see it, with what helps them.
using TellError = std::function<void(const Error& error)>;

struct Tool {
  std::string name;  // "dapple-plan"
  std::string help;
  std::string version;  // with the formats that it reads and writes
  std::vector<Command> commands;
  bool first_is_default = false;  // options without a command are those of the first
  /// Of a process that is one of several: called where it cannot go on, ends it with the exit code
  /// of the error and has the others end, of which one tells why. Returns where it is alone.
  void (*end_with_others)(const Error& error, const TellError& tell) = nullptr;
};

/// Each line of an error, after "error: ".
void print_error(Console& console, const Error& error);

/// "warning: " and the text, on a terminal filled into lines of its width.
void print_warning(Console& console, const std::string& text);

/// What a summary warns of, where --quiet hides the summary: print_warning() of each.
void print_warnings_if_quiet(Console& console, const std::vector<std::string>& texts);

int exit_code_of(ErrorKind kind);

/// `arguments` without the program's name. Throws nothing: every fault ends as a line on `err` and
/// a code: 1 for our bug, 2 usage, 3 bad input, 5 environment; else what the command returns.
int run_tool(const Tool& tool, const std::vector<std::string>& arguments, std::ostream& out,
             std::ostream& err);

}  // namespace dapple::command_line
