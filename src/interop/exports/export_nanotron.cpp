// Exports the keys of nanotron's configuration that a plan decides, as YAML to be merged into one.

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "dapple/interop/plans/nanotron_cut.h"
#include "interop/exports/exporting.h"
#include "interop/graphs/transformer_blocks.h"

namespace dapple::interop {
namespace {

/// Throws Error(BadInput) if nanotron would cut the model into other stages.
void require_cut(const ExportSubject& subject) {
  const Plan& plan = subject.document.plan;
  const ModelProfile& profile = subject.document.profile;
  const NanotronCut cut = nanotron_cut(profile, static_cast<std::int64_t>(plan.stages.size()));
  const LayerRange blocks = find_blocks(profile).layers;
  std::vector<std::int32_t> counts;
  for (const StagePlan& stage : plan.stages) counts.push_back(blocks_in(stage.layers, blocks));
  if (cut.blocks == counts) return;
  throw Error{ErrorKind::BadInput,
              "",
              {{"/stages", cut.fault.empty()
                               ? fmt::format("expected stages of {} blocks, as nanotron cuts the "
                                             "model itself, got {}",
                                             fmt::join(cut.blocks, ", "), fmt::join(counts, ", "))
                               : cut.fault}}};
}

}  // namespace

Export export_nanotron(const ExportSubject& subject) {
  require_runs(subject, kNanotron);
  require_cut(subject);
  const Plan& plan = subject.document.plan;
  const std::int64_t tensor = subject.document.profile.tensor_parallel;
  const bool recomputes = plan.stages.front().recompute || recomputes_blocks(plan);
  Export result{.text = {}, .warnings = warn_of_apart(subject)};
  result.text = fmt::format(
      "{}{}"
      "parallelism:\n"
      "  dp: {}\n"
      "  pp: {}\n"
      "  tp: {}\n"
      "  context_parallel_size: {}\n"
      "  pp_engine: 1f1b\n"
      "  tp_mode: {}\n"
      "  recompute_layer: {}\n"
      "tokens:\n"
      "  micro_batch_size: {}\n"
      "  batch_accumulation_per_replica: {}\n"
      "optimizer:\n"
      "  zero_stage: {}\n",
      heading_of(subject, "nanotron"), ranks_as_comment(subject), replicas_of_stages(plan),
      plan.stages.size(), tensor, plan.parallelism.context,
      plan.parallelism.sequence ? "REDUCE_SCATTER" : "ALL_REDUCE", recomputes ? "true" : "false",
      samples_per_rank(plan), micro_batches_per_replica(plan),
      plan.parallelism.shards_optimizer ? 1 : 0);
  if (plan.stages.size() > 1) {
    result.warnings.emplace_back(
        "nanotron cuts the model into stages itself; with fewer heads of keys and values than of "
        "queries it counts more parameters for a block than there are, and may cut otherwise");
  }
  if (plan.stages.front().recompute) result.warnings.push_back(warn_of_block_inputs("nanotron"));
  return result;
}

}  // namespace dapple::interop
