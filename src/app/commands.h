// The commands, one file each. Every one takes its arguments without its own name, writes results
// and errors to the console, throws Error, and returns an exit code.
#pragma once

#include <string>
#include <vector>

#include "console.h"
#include "options.h"

namespace dapple {

inline constexpr int kDone = 0;
inline constexpr int kBug = 1;
inline constexpr int kUsage = 2;
inline constexpr int kBadInput = 3;
inline constexpr int kInfeasible = 4;
inline constexpr int kEnvironment = 5;

int exit_code_of(ErrorKind kind);

/// Each line of an error, after "error: ".
void print_error(Console& console, const Error& error);

struct Command {
  std::string name;
  std::string help;
  std::vector<OptionSpec> options;
  int (*run)(const Options& options, Console& console);
};

Command plan_command();
Command simulate_command();
Command validate_command();
Command verify_command();
Command diff_command();
Command schedule_command();
Command report_command();
Command reschedule_command();

}  // namespace dapple
