// Exports a Python file that builds the stages of a process for PyTorch's pipelining runtime and
// gives them the plan's order (torch.distributed.pipelining, PipelineStage and
// _PipelineScheduleRuntime).

#include <fmt/format.h>

#include "interop/exports/exporting.h"

namespace dapple::interop {
namespace {

constexpr double kMebibyte = 1 << 20;

constexpr const char* kProgram = R"(import os
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint


class Recomputed(torch.nn.Module):
    """Keeps its input and runs its forward again before its backward."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *inputs):
        return checkpoint(self.module, *inputs, use_reentrant=False)


class ReplicatedStage(PipelineStage):
    """Has DistributedDataParallel average the gradients of a backward in two parts, of which it
    sees nothing: a backward that adds zeros shows them to it."""

    def backward_weight_one_chunk(self, bwd_chunk_id, last_backward=False):
        super().backward_weight_one_chunk(bwd_chunk_id, last_backward=last_backward)
        if last_backward and isinstance(self.submod, DistributedDataParallel):
            weights = [weight for weight in self.submod.parameters() if weight.requires_grad]
            torch.autograd.backward([weight.view_as(weight) for weight in weights],
                                    [weight.new_zeros(()).expand_as(weight) for weight in weights])


def process_groups(rank):
    """Those of this process: the pipeline that it is in, and the replicas of its stages."""
    own = [None, None]
    pipelines = [[p * REPLICAS + r for p in range(len(STAGES_OF_RANK))] for r in range(REPLICAS)]
    replicas = [[p * REPLICAS + r for r in range(REPLICAS)] for p in range(len(STAGES_OF_RANK))]
    for kind, groups in enumerate((pipelines, replicas)):
        for ranks in groups:  # every process makes every group
            group = dist.new_group(ranks)
            if rank in ranks:
                own[kind] = group
    return own


def build(layers, device, loss_fn):
    """The schedule of this process: step(inputs) where it has the first stage, step(target=...)
    where it has the last, with the samples of one replica. `layers` are the modules of the profile's
    layers, in their order; the process group of all ranks must be there."""
    if len(layers) != STAGES[-1][1]:
        raise ValueError(f"expected {STAGES[-1][1]} layers, got {len(layers)}")
    processes = len(STAGES_OF_RANK) * REPLICAS
    if dist.get_world_size() != processes:
        raise ValueError(f"expected {processes} processes, got {dist.get_world_size()}")
    pipeline_rank, replica = divmod(dist.get_rank(), REPLICAS)
    pipeline, replicas = process_groups(dist.get_rank())
    rank_of_stage = {stage: rank for rank, own in enumerate(STAGES_OF_RANK) for stage in own}
    stages = []
    for number in STAGES_OF_RANK[pipeline_rank]:
        begin, end = STAGES[number]
        module = torch.nn.Sequential(*layers[begin:end])
        module = (Recomputed(module) if RECOMPUTE else module).to(device)
        if REPLICAS > 1 and any(weight.requires_grad for weight in module.parameters()):
            module = DistributedDataParallel(module, process_group=replicas,
                                             bucket_cap_mb=BUCKET_MIB)
        stage = ReplicatedStage(module, number, len(STAGES), device, group=pipeline)
        stage.stage_index_to_group_rank = rank_of_stage
        # PyTorch 2.6 would ask the ranks beside this one for shapes; in a V they have other stages.
        stage.prev_rank, stage.next_rank = (
            rank_of_stage[neighbour % len(STAGES)] * REPLICAS + replica
            for neighbour in (number - 1, number + 1))
        stages.append(stage)
    schedule = _PipelineScheduleRuntime(stages, MICRO_BATCHES, loss_fn=loss_fn)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "order.csv")
        with open(path, "w", encoding="utf-8") as file:
            file.write(ORDER)
        schedule._load_csv(path)
    return schedule
)";

std::string list_of_stages(const Plan& plan) {
  std::string list;
  for (const StagePlan& stage : plan.stages) {
    list +=
        fmt::format("{}[{}, {}]", list.empty() ? "" : ", ", stage.layers.begin, stage.layers.end);
  }
  return list;
}

std::string stages_of_ranks(const Plan& plan) {
  std::string list;
  for (const std::vector<StageIndex>& stages : stages_by_device_group(plan)) {
    std::string own;
    for (const StageIndex stage : stages) {
      own += fmt::format("{}{}", own.empty() ? "" : ", ", stage.value);
    }
    list += fmt::format("{}[{}]", list.empty() ? "" : ", ", own);
  }
  return list;
}

}  // namespace

Export export_torch_python(const ExportSubject& subject) {
  require_runs(subject, kTorchModules);
  const Plan& plan = subject.document.plan;
  const std::size_t replicas = plan.stages.front().devices.size();
  Export result{.text = {}, .warnings = warn_of_torch(plan)};
  result.text = fmt::format(
      "{}{}{}\n"
      "STAGES = [{}]  # layers of each, [begin, end)\n"
      "STAGES_OF_RANK = [{}]  # pipeline ranks\n"
      "REPLICAS = {}\n"
      "MICRO_BATCHES = {}\n"
      "MICRO_BATCH_SIZE = {}  # of one replica\n"
      "BUCKET_MIB = {}  # of gradients, reduced together\n"
      "RECOMPUTE = {}\n"
      "ORDER = \"\"\"\\\n{}\"\"\"\n\n",
      kPythonEncoding, heading_of(subject, "PyTorch"), ranks_as_comment(subject),
      list_of_stages(plan), stages_of_ranks(plan), replicas, plan.num_micro_batches,
      samples_per_rank(plan), static_cast<double>(plan.gradients.bucket_size.count) / kMebibyte,
      plan.stages.front().recompute ? "True" : "False", torch_order(plan));
  result.text += kProgram;
  return result;
}

}  // namespace dapple::interop
