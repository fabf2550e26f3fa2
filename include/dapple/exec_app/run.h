// The command line tool that runs plans: commands, options, exit codes.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace dapple::exec_app {

/// `arguments` without the program's name. Exit code: 0 done, 1 our bug, 2 usage, 3 bad input,
/// 5 files, or a device that does not answer. Throws nothing: every fault ends as a line on `err`
/// and a code.
int run_exec(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

}  // namespace dapple::exec_app
