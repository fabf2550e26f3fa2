#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <set>
#include <utility>

#include "app/commands/commands.h"
#include "app/request/inputs.h"
#include "dapple/planner/candidates/evaluate.h"

namespace dapple::app {
namespace {

void validate_file(const std::string& path, command_line::Console& console) {
  const PlanDocument document = load_own_plan(path);
  const Topology topology{document.topology, command_line::source_name(path)};
  std::vector<Violation> faults = planner::check_plan(document.plan, document.profile, topology);
  if (!faults.empty())
    throw Error{ErrorKind::BadInput, command_line::source_name(path), std::move(faults)};
  std::set<DeviceIndex> used;
  for (const StagePlan& stage : document.plan.stages) {
    used.insert(stage.devices.begin(), stage.devices.end());
  }
  const std::size_t devices = used.size();
  console.words(false).stream << fmt::format(
      "valid: {}: {} on {}, {} stage{}, {} device{}, {} micro-batch{} of {}\n",
      command_line::source_name(path), printable(document.profile.name),
      printable(document.topology.name), document.plan.stages.size(),
      document.plan.stages.size() == 1 ? "" : "s", devices, devices == 1 ? "" : "s",
      document.plan.num_micro_batches, document.plan.num_micro_batches == 1 ? "" : "es",
      document.plan.micro_batch_size);
}

int run_validate(const command_line::Options& options, command_line::Console& console) {
  if (options.positional().empty()) {
    throw command_line::usage_error("validate", "expected one plan file or more, got none");
  }
  command_line::check_inputs(command_line::numbered_paths(options.positional()));
  int code = command_line::kDone;
  for (const std::string& path : options.positional()) {
    try {
      validate_file(path, console);
    } catch (const Error& error) {
      // A fault in one file does not prevent checking the others.
      command_line::print_error(console, error);
      code = std::max(code, command_line::exit_code_of(error.kind()));
    }
  }
  return code;
}

}  // namespace

command_line::Command validate_command() {
  return {
      .description =
          {.name = "validate",
           .summary = "name every fault of plan files",
           .usage = {"dapple-plan validate PLAN..."},
           .about =
               "A fault is a line \"error: FILE: /json/pointer: expected X, got Y\" on stderr, "
               "and a file without faults is a line \"valid: ...\" on stdout. A PLAN of \"-\" "
               "is stdin.",
           .details = {"The form of the file and its hashes are checked, and of the plan itself: "
                       "layers that are not covered, devices that are used twice or do not exist, "
                       "batch sizes that do not multiply, warm-up depths that deadlock, the order "
                       "of actions, and memory that is exceeded."},
           .takes_files = true,
           .examples =
               {"dapple-plan --model profiles/bert-large.json --topo topologies/8xV100.json",
                "dapple-plan validate bert-large.plan.json"},
           .exit_codes = {{command_line::kBadInput, "a file has a fault"},
                          {command_line::kEnvironment, "a file cannot be read"}}},
      .run = run_validate};
}

}  // namespace dapple::app
