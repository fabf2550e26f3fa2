#include "dapple/app/run.h"

#include <fmt/format.h>

#include "app/commands/commands.h"
#include "app/commands/import/import_parts.h"
#include "dapple/command_line/tool.h"

namespace dapple::app {
namespace {

constexpr const char* kVersion =
    "dapple-plan " DAPPLE_VERSION
    "\n"
    "reads dapple-profile/1, dapple-topology/1, dapple-plan/1, dapple-timeline/1\n"
    "reads dapple-gpus/1, config.json of Hugging Face models\n"
    "reads PipeDream graph text\n"
    "{}"
    "writes dapple-profile/1, dapple-topology/1, dapple-plan/1, dapple-timeline/1\n"
    "writes dapple-schedule/1, dapple-comparison/1, dapple-measurement/1, dapple-export/1\n"
    "writes dapple-result/1\n"
    "writes Chrome trace JSON, HTML, SVG\n"
    "exports for Megatron-LM, DeepSpeed, PyTorch, torchtitan, nanotron, ColossalAI, PipeDream, "
    "Sailor\n"
    "exports Chakra execution traces, files for Open MPI\n";

command_line::ToolDescription description() {
  return {
      .name = "dapple-plan",
      .summary = "decide how to train a neural network on a set of devices",
      .usage = {"dapple-plan [plan] --model PROFILE --topo TOPOLOGY [options]",
                "dapple-plan COMMAND [options]", "dapple-plan help COMMAND"},
      .about = "A plan says which layers run on which devices, and in which order.",
      .details = {"It reads a layer profile and a topology, and chooses by an exact search whose "
                  "candidates are simulated; the plan file says how far the plan is proven to be "
                  "from the best one. Other commands check, compare, show and export plans.",
                  "Options without a command are those of plan."},
      .first_options = {"model", "topo", "output"},
      .examples = {"dapple-plan --model profiles/bert-48.json --topo topologies/2x8xV100.json"},
      .exit_codes = {{command_line::kDone, "done"},
                     {command_line::kBug, "a bug"},
                     {command_line::kUsage, "wrong usage"},
                     {command_line::kBadInput, "bad input or a false claim"},
                     {command_line::kInfeasible, "no plan fits"},
                     {command_line::kEnvironment, "a file cannot be read or written"},
                     {command_line::kNotVerified, "not false, but not verified"}},
      .environment = {{"NO_COLOR", "If it is set, nothing is printed in colour."},
                      {"COLUMNS", "It is the width of tables where stdout is no terminal."}},
      .see_also = {"dapple-exec"}};
}

command_line::Tool tool() {
  return {.description = description(),
          .version = fmt::format(kVersion, imports_text()),
          .commands = {plan_command(), pareto_command(), simulate_command(), validate_command(),
                       verify_command(), diff_command(), schedule_command(), report_command(),
                       reschedule_command(), export_command(), import_command(), estimate_command(),
                       calibrate_command()},
          .first_is_default = true};
}

}  // namespace

int run(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  return command_line::run_tool(tool(), arguments, out, err);
}

}  // namespace dapple::app
