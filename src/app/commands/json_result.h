// --json: what a command found out about plans as a dapple-result/1 on stdout.
#pragma once

#include <functional>
#include <string>

#include "dapple/command_line/console.h"
#include "dapple/io/documents/result_document.h"
#include "dapple/topology/topology.h"

namespace dapple::app {

/// Prints the result in place of what the command says to people. `topology` names the devices of
/// its predictions, and may be null if it has none.
void print_result(io::ResultDocument result, const Topology* topology,
                  command_line::Console& console);

/// Adds the faults that an error carries.
void add_faults(const Error& error, io::ResultDocument& result);

/// Returns what `run` returns. If it throws Error(BadInput) or Error(Environment) and `is_json`
/// holds, prints the error and the result of `command` with its faults, and returns the exit code.
int run_with_result(const std::string& command, bool is_json, command_line::Console& console,
                    const std::function<int()>& run);

}  // namespace dapple::app
