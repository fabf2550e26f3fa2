#include "dapple/app/run.h"

#include "app/commands/commands.h"
#include "dapple/command_line/tool.h"

namespace dapple::app {
namespace {

constexpr const char* kProgramHelp =
    R"(dapple-plan decides how to train a neural network on a set of devices: which
layers form which pipeline stage, on which devices, in which order.

Usage
  dapple-plan [plan] --model PROFILE --topo TOPOLOGY [options]
  dapple-plan COMMAND [options]
  dapple-plan help COMMAND     all options of one; of the search: help plan

Commands
  plan       search the fastest plan that fits memory (the default)
  simulate   run a plan file on its own model and topology, or on others
  validate   name every fault of plan files
  verify     check a plan file's figures, and its bound where it is small
  diff       two plans side by side, costed alike
  schedule   a plan's action lists, for another runtime
  report     a page for a browser, and the timeline as a figure
  reschedule a plan under another schedule: zero bubble, interleaved, ...
  export     a plan for Megatron-LM, DeepSpeed, PyTorch, ASTRA-sim, ...
  import     other tools' topologies, profiles and plans as ours

First options of plan; "dapple-plan plan --help" has all of them
  --model FILE         layer profile (dapple-profile/1 or a PipeDream graph)
  --topo FILE          devices and links (dapple-topology/1)
  --global-batch N     samples per iteration        (default: the profile's)
  -o, --output FILE    the plan, in place of a file of that name
                                                    (default: MODEL.plan.json)
  --trace FILE         timeline for chrome://tracing or ui.perfetto.dev

Options of every command
  -v, --verbose        all that was searched and listed, and what is done
  -q, --quiet          results that are asked for, warnings and errors alone
  -h, --help           this, or a command's own help
  --version            version, and the formats that are read

Example
  dapple-plan --model profiles/bert-48.json --topo topologies/2x8xV100.json

Exit code: 0 done, 1 a bug, 2 usage, 3 bad input or a false claim, 4 no plan
fits, 5 files, 6 nothing is false but not all is verified.
)";

constexpr const char* kVersion =
    "dapple-plan " DAPPLE_VERSION
    "\n"
    "reads dapple-profile/1, dapple-topology/1, dapple-plan/1, dapple-timeline/1\n"
    "reads PipeDream graph text\n"
    "imports topologies of nvidia-smi, NCCL, hwloc, nccl-tests, Slurm, ASTRA-sim\n"
    "imports profiles of PipeDream, Piper, Metis, Sailor, Galvatron\n"
    "imports plans of PipeDream, Megatron-LM, DeepSpeed, PyTorch, torchtitan, Sailor\n"
    "writes dapple-profile/1, dapple-topology/1, dapple-plan/1, dapple-timeline/1\n"
    "writes dapple-schedule/1, dapple-comparison/1, dapple-measurement/1, dapple-export/1\n"
    "writes Chrome trace JSON, HTML, SVG\n"
    "exports for Megatron-LM, DeepSpeed, PyTorch, torchtitan, ColossalAI, PipeDream, Sailor\n"
    "exports Chakra execution traces, files for Open MPI\n";

command_line::Tool tool() {
  return {.name = "dapple-plan",
          .help = kProgramHelp,
          .version = kVersion,
          .commands = {plan_command(), simulate_command(), validate_command(), verify_command(),
                       diff_command(), schedule_command(), report_command(), reschedule_command(),
                       export_command(), import_command()},
          .first_is_default = true};
}

}  // namespace

int run(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  return command_line::run_tool(tool(), arguments, out, err);
}

}  // namespace dapple::app
