// Exports options of Megatron-LM with its pipeline layout: E stands for the embedding, t for a
// transformer block, L for everything after the last block, and | separates stages. With P pipeline
// ranks, stage i runs on rank i mod P.

#include <fmt/format.h>

#include <optional>
#include <string>

#include "dapple/profile/collective.h"
#include "dapple/profile/variants.h"
#include "interop/exports/exporting.h"
#include "interop/graphs/transformer_blocks.h"
#include "interop/plans/plan_formats.h"

namespace dapple::interop {
namespace {

std::string layout_of(const Plan& plan, LayerRange blocks) {
  std::string layout;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const std::int32_t count = blocks_in(plan.stages[s].layers, blocks);
    if (s > 0) layout += '|';
    if (s == 0) layout += 'E';
    if (count == 1) layout += 't';
    if (count > 1) layout += fmt::format("t*{}", count);
    if (s + 1 == plan.stages.size()) layout += 'L';
  }
  return layout;
}

std::string recomputation_options(const Plan& plan) {
  if (const LayerSelection layers = plan.parallelism.recomputed_layers; !layers.is_all()) {
    return fmt::format(
        "  --recompute-granularity full\n  --recompute-method block\n  "
        "--recompute-num-layers {}\n",
        layers.number());
  }
  if (plan.stages.front().recompute || recomputes_blocks(plan)) {
    return "  --recompute-granularity full\n  --recompute-method uniform\n  "
           "--recompute-num-layers 1\n";
  }
  std::string modules;
  for (const RecomputedPart part : kRecomputedParts) {
    if (plan.parallelism.recomputes.contains(part))
      modules += fmt::format(" {}", megatron_module(part));
  }
  if (modules.empty()) return "";
  return fmt::format("  --recompute-granularity selective\n  --recompute-modules{}\n", modules);
}

/// Returns the options of gradients that are reduced while backwards run, if any are.
std::string gradient_options(const Plan& plan, const ModelProfile& profile) {
  if (replicas_of_stages(plan) < 2 || !plan.gradients.overlaps) return "";
  const std::optional<std::int64_t> parameters = parameters_in_bucket(profile, plan);
  return "  --overlap-grad-reduce\n" +
         (parameters ? fmt::format("  --ddp-bucket-size {}\n", *parameters) : std::string());
}

/// Returns the option that says how context-parallel ranks exchange keys and values, if the plan's
/// figures say it.
std::string context_exchange_option(const ModelProfile& profile, const Parallelism& form) {
  const std::optional<ContextExchange> exchange = context_exchange_of(profile, form);
  if (!exchange) return "";
  const char* const kind = *exchange == ContextExchange::Ring       ? "p2p"
                           : *exchange == ContextExchange::AllToAll ? "a2a"
                                                                    : "all_gather";
  return fmt::format("  --cp-comm-type {}\n", kind);
}

}  // namespace

Export export_megatron(const ExportSubject& subject) {
  const Plan& plan = subject.document.plan;
  const ModelProfile& profile = subject.document.profile;
  require_runs(subject, kMegatron);
  const LayerRange blocks = find_blocks(profile).layers;
  Export result{.text = {}, .warnings = warn_of_apart(subject)};
  const std::size_t groups = stages_by_device_group(plan).size();
  result.text = fmt::format(
      "{}{}"
      "PIPELINE_ARGS=(\n"
      "  --tensor-model-parallel-size {}\n"
      "  --pipeline-model-parallel-size {}\n"
      "  --pipeline-model-parallel-layout {}\n"
      "  --num-layers {}\n"
      "  --micro-batch-size {}\n"
      "  --global-batch-size {}\n",
      heading_of(subject, "Megatron-LM"), ranks_as_comment(subject), profile.tensor_parallel,
      groups, quoted(layout_of(plan, blocks)), blocks.size(), samples_per_rank(plan),
      plan.global_batch_size);
  if (profile.tensor_parallel > 1) {
    result.warnings.emplace_back(
        "Megatron-LM with tensor parallelism asks for CUDA_DEVICE_MAX_CONNECTIONS=1 in the "
        "environment");
  }
  if (plan.parallelism.sequence) result.text += "  --sequence-parallel\n";
  const Parallelism& form = plan.parallelism;
  if (form.context > 1) {
    result.text += fmt::format("  --context-parallel-size {}\n", form.context);
    result.text += context_exchange_option(profile, plan.parallelism);
  }
  if (form.experts > 1) {
    result.text +=
        fmt::format("  --expert-model-parallel-size {}\n  --expert-tensor-parallel-size {}\n",
                    form.experts, form.expert_tensor);
    // Megatron-LM merges copies by DeepEP alone.
    if (merges_copies(profile, form)) {
      result.text += "  --moe-token-dispatcher-type flex\n  --moe-enable-deepep\n";
    }
  }
  // Without either Megatron-LM computes in single precision.
  if (is_half_precision(profile)) result.text += fmt::format("  --{}\n", profile.precision);
  if (form.shards_optimizer) result.text += "  --use-distributed-optimizer\n";
  // All groups of a stage hold the same shards.
  if (const std::size_t instances = plan.stages.front().devices.size();
      form.optimizer_shards > 0 && instances > 1) {
    result.text += fmt::format("  --num-distributed-optimizer-instances {}\n", instances);
  }
  result.text += gradient_options(plan, profile);
  result.text += recomputation_options(plan);
  if (plan.stages.front().recompute) {
    result.warnings.push_back(warn_of_block_inputs("Megatron-LM"));
  }
  result.text += ")\n";
  result.text += "# OTHER_ARGS are what a plan does not decide, of model, data and optimizer.\n";
  result.text += launch_as_comment(
      subject, profile.tensor_parallel > 1 ? "CUDA_DEVICE_MAX_CONNECTIONS=1 " : "",
      R"(pretrain_gpt.py "${PIPELINE_ARGS[@]}" "${OTHER_ARGS[@]}")");
  return result;
}

}  // namespace dapple::interop
