#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <set>
#include <utility>

#include "app/commands/commands.h"
#include "app/commands/json_result.h"
#include "app/request/inputs.h"
#include "app/request/modes.h"
#include "dapple/planner/candidates/evaluate.h"

namespace dapple::app {
namespace {

/// Throws Error if the plan has a fault.
PlanDocument validated(const std::string& path) {
  const PlanDocument document = load_own_plan(path);
  const Topology topology{document.topology, command_line::source_name(path)};
  std::vector<Violation> faults = planner::check_plan(document.plan, document.profile, topology);
  if (!faults.empty())
    throw Error{ErrorKind::BadInput, command_line::source_name(path), std::move(faults)};
  return document;
}

void print_valid(const PlanDocument& document, const std::string& path,
                 command_line::Console& console) {
  std::set<DeviceIndex> used;
  for (const StagePlan& stage : document.plan.stages) {
    used.insert(stage.devices.begin(), stage.devices.end());
  }
  const std::int64_t devices = std::ssize(used) * document.topology.group_size;
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
  const bool is_json = options.has("json");
  io::ResultDocument result{.command = "validate"};
  for (const std::string& path : options.positional()) {
    try {
      const PlanDocument document = validated(path);
      if (is_json) {
        result.plans.push_back(io::plan_result(document, command_line::source_name(path)));
        result.plans.back().warnings = document.warnings;
      } else {
        print_valid(document, path, console);
      }
    } catch (const Error& error) {
      // A fault in one file does not prevent checking the others.
      command_line::print_error(console, error);
      add_faults(error, result);
      result.exit_code = std::max(result.exit_code, command_line::exit_code_of(error.kind()));
    }
  }
  const int code = result.exit_code;
  if (is_json) print_result(std::move(result), nullptr, console);
  return code;
}

}  // namespace

command_line::Command validate_command() {
  return {
      .description =
          {.name = "validate",
           .summary = "report every fault of plan files",
           .usage = {"dapple-plan validate PLAN... [--json]"},
           .about =
               "A fault is a line \"error: FILE: /json/pointer: expected X, got Y\" on stderr, "
               "and a file without faults is a line \"valid: ...\" on stdout. A PLAN of \"-\" "
               "is stdin.",
           .details = {"The form of the file and its hashes are checked, and of the plan itself: "
                       "layers that are not covered, devices that are used twice or do not exist, "
                       "batch sizes that do not multiply, warm-up depths that deadlock, the order "
                       "of actions, and memory that is exceeded."},
           .takes_files = true,
           .options = {{"", {json_option()}}},
           .examples =
               {"dapple-plan --model profiles/bert-large.json --topo topologies/8xV100.json",
                "dapple-plan validate bert-large.plan.json"},
           .exit_codes = {{command_line::kBadInput, "a file has a fault"},
                          {command_line::kEnvironment, "a file cannot be read"}}},
      .run = run_validate};
}

}  // namespace dapple::app
