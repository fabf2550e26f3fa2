#include "dapple/exec_app/run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dapple/command_line/tool.h"
#include "dapple/nn/kernel_choice.h"
#include "exec_app/commands/commands.h"
#include "exec_app/commands/rank_process.h"

namespace dapple::exec_app {
namespace {

constexpr const char* kProgramHelp =
    R"(dapple-exec runs a plan that dapple-plan wrote.

Usage
  dapple-exec COMMAND [options]

Commands
  replay     with its real messages, and sleeping for computing
  profile    measures the layers of a model, to plan from
  train      its model, on this machine's CPU or GPUs, by the plan's schedule
  help       all options of a command: "dapple-exec help train"

  -v, --verbose        what is done, on stderr
  -q, --quiet          results that are asked for, warnings and errors alone
  -h, --help           this, or a command's own help
  --version            version, and the formats that are read

Example
  dapple-exec profile --spec profiles/mlp.json -o profile.json
  dapple-plan --model profile.json --topo topologies/2xcpu.json -o plan.json
  dapple-exec train plan.json --steps 5

Exit code: 0 done, 1 a bug, 2 usage, 3 bad input, 5 files, or a device that
does not answer, 6 not verified.
)";

const std::string kVersion =
    "dapple-exec " DAPPLE_VERSION
    "\n"
    "reads dapple-plan/1, dapple-profile/1, dapple-checkpoint/1 and 2\n"
    "writes dapple-profile/1, dapple-timeline/1, dapple-checkpoint/2, Chrome trace JSON\n";

command_line::Tool tool() {
  return {
      .name = "dapple-exec",
      .help = kProgramHelp,
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
