// The command line tool dapple-plan: commands, options, progress, exit codes.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace dapple::app {

/// Runs the tool; `arguments` are without the program's name. Returns an exit code: 0 done, 1 a bug
/// of ours, 2 usage, 3 bad input or a false claim, 4 no feasible plan, 5 environment, 6 not
/// verified. Throws nothing: every fault becomes a line on `err` and an exit code.
int run(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

}  // namespace dapple::app
