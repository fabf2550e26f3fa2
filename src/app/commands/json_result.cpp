#include "app/commands/json_result.h"

#include <ostream>
#include <utility>

#include "app/request/inputs.h"
#include "dapple/command_line/tool.h"

namespace dapple::app {

void print_result(io::ResultDocument result, const Topology* topology,
                  command_line::Console& console) {
  result.tool = kTool;
  console.documents << io::write_result_json(result, topology);
}

void add_faults(const Error& error, io::ResultDocument& result) {
  for (const Violation& violation : error.violations()) {
    result.faults.push_back({.source = error.source(), .fault = violation});
  }
}

int run_with_result(const std::string& command, bool is_json, command_line::Console& console,
                    const std::function<int()>& run) {
  try {
    return run();
  } catch (const Error& error) {
    if (!is_json || error.kind() == ErrorKind::Usage) throw;
    command_line::print_error(console, error);
    io::ResultDocument result{.command = command,
                              .exit_code = command_line::exit_code_of(error.kind())};
    add_faults(error, result);
    const int code = result.exit_code;
    print_result(std::move(result), nullptr, console);
    return code;
  }
}

}  // namespace dapple::app
