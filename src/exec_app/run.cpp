#include "dapple/exec_app/run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dapple/command_line/tool.h"
#include "dapple/nn/kernel_choice.h"
#include "exec_app/commands/commands.h"
#include "exec_app/commands/rank_process.h"

namespace dapple::exec_app {
namespace {

const std::string kVersion =
    "dapple-exec " DAPPLE_VERSION
    "\n"
    "reads dapple-plan/1, dapple-profile/1, dapple-checkpoint/1 and 2\n"
    "writes dapple-profile/1, dapple-timeline/1, dapple-checkpoint/2, Chrome trace JSON\n";

command_line::ToolDescription description() {
  return {
      .name = "dapple-exec",
      .summary = "run and measure a plan that dapple-plan wrote",
      .usage = {"dapple-exec COMMAND [options]", "dapple-exec help COMMAND"},
      .about =
          "Devices of the plan are threads of one process, or ranks that mpirun, torchrun or "
          "srun has started.",
      .details = {"It measures the layers of a model, so that dapple-plan can plan with their "
                  "times; then it replays the plan with real messages, or trains the model by the "
                  "plan's schedule, and compares the measured time with the predicted one."},
      .examples = {"dapple-exec profile --spec profiles/mlp.json -o profile.json",
                   "dapple-plan --model profile.json --topo topologies/2xcpu.json -o plan.json",
                   "dapple-exec train plan.json --steps 5"},
      .exit_codes = {{command_line::kDone, "done"},
                     {command_line::kBug, "a bug of the program"},
                     {command_line::kUsage, "wrong usage"},
                     {command_line::kBadInput, "bad input"},
                     {command_line::kEnvironment,
                      "a file cannot be read or written, or a device does not answer"},
                     {command_line::kNotVerified, "not verified"}},
      .environment = {{"DAPPLE_SECRET, DAPPLE_SECRET_FILE",
                       "The secret by which ranks know each other over TCP, or the name of a file "
                       "that holds it."},
                      {"CUDA_VISIBLE_DEVICES", "The GPUs that a process may use."},
                      {"NO_COLOR", "If it is set, nothing is printed in colour."},
                      {"COLUMNS", "It is the width of tables where stdout is no terminal."}},
      .see_also = {"dapple-plan"}};
}

command_line::Tool tool() {
  return {
      .description = description(),
      .version = kVersion + fmt::format("computes on this CPU by its {} kernels; has {}\n",
                                        nn::kernels_in_use(), fmt::join(nn::kernel_names(), ", ")),
      .commands = {replay_command(), profile_command(), train_command()},
      .first_is_default = false,
      .end_with_others = end_with_others};
}

}  // namespace

int run_exec(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  return command_line::run_tool(tool(), arguments, out, err);
}

}  // namespace dapple::exec_app
