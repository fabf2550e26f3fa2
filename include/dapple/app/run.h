// The command line tool: commands, options, progress, exit codes.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace dapple::app {

/// `arguments` without the program's name. Exit code: 0 done, 1 our bug, 2 usage, 3 bad input,
/// 4 no feasible plan, 5 environment. Throws nothing: every fault ends as a line on `err` and a
/// code.
int run(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

}  // namespace dapple::app
