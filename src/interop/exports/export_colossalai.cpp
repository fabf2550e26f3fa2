// Exports the arguments of ColossalAI's HybridParallelPlugin: 1F1B with the number of transformer
// blocks of each stage. The plugin itself places the embedding with the first block and the head
// with the last one.

#include <fmt/format.h>

#include "interop/exports/exporting.h"
#include "interop/graphs/transformer_blocks.h"

namespace dapple::interop {

Export export_colossalai(const ExportSubject& subject) {
  require_runs(subject, kColossalAi);
  const Plan& plan = subject.document.plan;
  const ModelProfile& profile = subject.document.profile;
  const LayerRange blocks = find_blocks(subject.document.profile).layers;
  std::string counts;
  for (const StagePlan& stage : plan.stages) {
    counts += fmt::format("{}{}", counts.empty() ? "" : ", ", blocks_in(stage.layers, blocks));
  }
  Export result{.text = {}, .warnings = warn_of_apart(subject)};
  result.text = fmt::format(
      R"({}{}{}
from colossalai.booster.plugin import HybridParallelPlugin

BATCH_SIZE = {}  # samples of one process in an iteration
RECOMPUTE = {}  # then call model.gradient_checkpointing_enable()


def plan(**options):
    """Returns the plugin with the plan's stages; other settings are passed as options."""
    return HybridParallelPlugin(
        tp_size={},
        pp_size={},
        pp_style="1f1b",
        num_microbatches={},
        num_layers_per_stage=[{}],
        dp_outside=False,
{}        **options,
    )
)",
      kPythonEncoding, heading_of(subject, "ColossalAI"), ranks_as_comment(subject),
      samples_per_rank(plan) * plan.num_micro_batches,
      plan.stages.front().recompute || recomputes_blocks(plan) ? "True" : "False",
      subject.document.profile.tensor_parallel, plan.stages.size(), plan.num_micro_batches, counts,
      profile.precision.empty()
          ? std::string()
          : fmt::format("        precision=\"{}\",\n",
                        is_half_precision(profile) ? profile.precision : std::string("fp32")));
  if (plan.stages.front().recompute) {
    result.warnings.push_back(warn_of_block_inputs("ColossalAI"));
  }
  return result;
}

}  // namespace dapple::interop
