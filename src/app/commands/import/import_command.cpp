#include "app/commands/commands.h"
#include "app/commands/import/import_parts.h"

namespace dapple::app {
command_line::Command import_command() {
  return {.description =
              {.name = "import",
               .summary = "import topologies, profiles and plans of other tools",
               .usage = {"dapple-plan import KIND FILE... [options]"},
               .about = "\"dapple-plan import KIND --help\" says more.",
               .terms_title = "Kinds",
               .terms = {{"topology",
                          "how devices are wired: nvidia-smi, NCCL, hwloc, nccl-tests, Slurm, "
                          "ASTRA-sim"},
                         {"model", "profiles: PipeDream, Piper, Metis, Sailor, Galvatron"},
                         {"plan",
                          "plans: PipeDream, Megatron-LM, DeepSpeed, PyTorch and torchtitan, "
                          "Sailor"}},
               .examples = {"dapple-plan import topology tests/golden/interop/ring.astra.yml \\",
                            "    --device card --memory \"16 GiB\" -o ring.json"}},
          .parts = {import_topology_command(), import_model_command(), import_plan_command()}};
}

}  // namespace dapple::app
