#include "app/commands/commands.h"
#include "app/commands/import/import_parts.h"

namespace dapple::app {
namespace {

constexpr const char* kImportHelp =
    R"(dapple-plan import: files of other tools as files of ours.

Usage: dapple-plan import KIND FILE... [options]

  import topology  how devices are wired: nvidia-smi, NCCL, hwloc, nccl-tests,
                   Slurm, ASTRA-sim
  import model     profiles: PipeDream, Piper, Metis, Sailor, Galvatron
  import plan      plans: PipeDream, Megatron-LM, DeepSpeed, PyTorch and
                   torchtitan, Sailor

"dapple-plan import KIND --help" says more.

Example
  dapple-plan import topology tests/golden/interop/ring.astra.yml \
    --device card --memory "16 GiB" -o ring.json
)";

}  // namespace

command_line::Command import_command() {
  return {.name = "import",
          .help = kImportHelp,
          .parts = {import_topology_command(), import_model_command(), import_plan_command()}};
}

}  // namespace dapple::app
