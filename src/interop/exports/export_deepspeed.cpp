// Exports a subclass of DeepSpeed's PipelineModule that uses the plan's stage boundaries.

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "interop/exports/exporting.h"

namespace dapple::interop {

namespace {

/// Returns the entry of the settings that chooses 16-bit numbers; empty where they are not known.
std::string precision_of(const ModelProfile& profile) {
  if (!is_half_precision(profile)) return "";
  return fmt::format("\n    \"{}\": {{\"enabled\": True}},", profile.precision);
}

/// Returns the entry of the settings by which tensor ranks send whole tensors, where these send
/// shares of them otherwise; empty where they do not.
std::string pipeline_of(const Plan& plan) {
  if (plan.parallelism.tensor == 1 || plan.boundaries == Boundaries::ScatterGather) return "";
  return "\n    \"pipeline\": {\"pipe_partitioned\": False, \"grad_partitioned\": False},";
}

}  // namespace

Export export_deepspeed(const ExportSubject& subject) {
  const Plan& plan = subject.document.plan;
  require_runs(subject, kDeepSpeed);
  std::string parts = "0";
  for (const StagePlan& stage : plan.stages) parts += fmt::format(", {}", stage.layers.end);
  const std::size_t replicas = plan.stages.front().devices.size();
  const bool recomputes = plan.stages.front().recompute;
  const std::int64_t degree = subject.document.profile.tensor_parallel;
  const std::string_view topology =
      degree == 1 ? "PipeDataParallelTopology" : "PipeModelDataParallelTopology";
  const std::string shares = degree == 1 ? std::string() : fmt::format(", num_mp={}", degree);
  Export result;
  result.text = fmt::format(
      R"({}{}{}
from deepspeed.pipe import PipelineModule
from deepspeed.runtime.pipe.topology import {}

PARTS = [{}]  # stage s runs entries PARTS[s] to PARTS[s + 1] of `layers`

CONFIG = {{
    "train_batch_size": {},
    "train_micro_batch_size_per_gpu": {},
    "gradient_accumulation_steps": {},{}{}{}
}}


class PlannedPipeline(PipelineModule):
    """Takes the model as a list of {} layers, in the order of the profile."""

    def __init__(self, layers, **options):
        if len(layers) != PARTS[-1]:
            raise ValueError(f"expected {{PARTS[-1]}} layers, got {{len(layers)}}")
        options.setdefault("activation_checkpoint_interval", {})
        topology = {}
        super().__init__(layers=layers, topology=topology, **options)

    def _partition_layers(self, method="uniform"):
        stage = self._topo.get_coord(self.global_rank).pipe
        self.parts = PARTS
        self._set_bounds(start=PARTS[stage], stop=PARTS[stage + 1])
)",
      kPythonEncoding, heading_of(subject, "DeepSpeed"), ranks_as_comment(subject), topology, parts,
      plan.global_batch_size, samples_per_rank(plan), micro_batches_per_replica(plan),
      plan.parallelism.shards_optimizer ? "\n    \"zero_optimization\": {\"stage\": 1}," : "",
      pipeline_of(plan), precision_of(subject.document.profile),
      subject.document.profile.layers.size(),
      recomputes ? subject.document.profile.layers.size() : (recomputes_blocks(plan) ? 1U : 0U),
      fmt::format("{}(num_pp={}{}, num_dp={})", topology, plan.stages.size(), shares, replicas));
  if (degree != 1) {
    result.warnings.push_back(fmt::format(
        "a layer of the list has to share itself out over the {} GPUs of its tensor ranks",
        degree));
  }
  return result;
}

}  // namespace dapple::interop
