// The command line tool dapple-exec, which runs plans: commands, options, exit codes.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace dapple::exec_app {

/// Runs the tool; `arguments` are without the program's name. Returns an exit code: 0 done, 1 a bug
/// of ours, 2 usage, 3 bad input, 5 files, or a device that does not respond, 6 not verified.
/// Throws nothing: every fault becomes a line on `err` and an exit code.
int run_exec(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

}  // namespace dapple::exec_app
