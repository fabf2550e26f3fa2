// The table of export targets, and what the files of each target leave out.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "interop/exports/exporting.h"

namespace dapple::interop {
namespace {

bool is_replicated(const Plan& plan) {
  return std::any_of(plan.stages.begin(), plan.stages.end(),
                     [](const StagePlan& stage) { return stage.devices.size() > 1; });
}

bool recomputes(const Plan& plan) {
  return std::any_of(plan.stages.begin(), plan.stages.end(),
                     [](const StagePlan& stage) { return stage.recompute; });
}

bool sends_shares(const Plan& plan) {
  const Parallelism& form = plan.parallelism;
  return plan.boundaries == Boundaries::ScatterGather && form.tensor > 1 && !form.sequence &&
         plan.stages.size() > 1;
}

bool uses_several_servers(const ExportSubject& subject) {
  std::set<ServerIndex> servers;
  for (const DeviceIndex device : devices_by_rank(subject.document.plan)) {
    servers.insert(subject.topology.device(device).server);
  }
  return servers.size() > 1;
}

/// Whether some rank's GPU differs from the default, which is to number the ranks of a server from
/// GPU 0 on.
bool counts_gpus_otherwise(const ExportSubject& subject) {
  std::map<ServerIndex, std::int32_t> ranks;
  for (const DeviceIndex index : devices_by_rank(subject.document.plan)) {
    const Device& device = subject.topology.device(index);
    if (device.number != ranks[device.server]++) return true;
  }
  return false;
}

/// Returns "25 MiB", or the number of bytes if the size is not a whole number of MiB.
std::string size_in_words(Bytes size) {
  constexpr std::int64_t kMebibyte = 1 << 20;
  return size.count % kMebibyte == 0 ? fmt::format("{} MiB", size.count / kMebibyte)
                                     : fmt::format("{} bytes", size.count);
}

// What the files of several targets lack.
constexpr FileGaps kGradients{.buckets = true, .steps_by_bucket = true};
constexpr FileGaps kShares{.shares = true, .buckets = true, .steps_by_bucket = true};
constexpr FileGaps kGpus{.gpus = true};
// What an order of actions alone lacks.
constexpr FileGaps kOrderAlone{.stages = true,
                               .micro_batch = true,
                               .recomputation = true,
                               .shares = true,
                               .buckets = true,
                               .steps_by_bucket = true};

}  // namespace

std::vector<std::string> left_out(const ExportTarget& target, const ExportSubject& subject) {
  const Plan& plan = subject.document.plan;
  const FileGaps& gaps = target.gaps;
  std::vector<std::string> choices;
  if (gaps.stages) choices.emplace_back("layers and devices of stages (torchtitan has them)");
  if (gaps.order) choices.emplace_back("the order of actions (torch-csv has it)");
  if (gaps.micro_batch) {
    choices.push_back(fmt::format("micro-batches of {} samples", plan.micro_batch_size));
  }
  if (gaps.recomputation && recomputes(plan)) choices.emplace_back("that stages recompute");
  if (gaps.shares && sends_shares(plan)) {
    choices.emplace_back("that tensor ranks send shares of a tensor, and gather it");
  }
  const bool lacks_buckets =
      gaps.buckets ||
      (gaps.buckets_without_precision && !parameters_in_bucket(subject.document.profile, plan));
  if (lacks_buckets && is_replicated(plan)) {
    choices.push_back("gradient buckets of " + size_in_words(plan.gradients.bucket_size));
  }
  if (gaps.steps_by_bucket && plan.gradients.optimizer == OptimizerTiming::PerBucket) {
    choices.emplace_back("that the optimizer steps bucket by bucket");
  }
  if (gaps.devices) choices.emplace_back("which device each rank has (rankfile does)");
  if (gaps.servers && uses_several_servers(subject)) {
    choices.emplace_back("which server each rank has (rankfile does)");
  }
  if (gaps.gpus && counts_gpus_otherwise(subject)) {
    choices.emplace_back("which device of its server each rank has (visible-devices does)");
  }
  return choices;
}

Export export_plan(const ExportTarget& target, const ExportSubject& subject) {
  Export made = target.make(subject);
  const std::vector<std::string> choices = left_out(target, subject);
  if (!choices.empty()) {
    made.warnings.push_back(
        fmt::format("not in the files of {}: {}", target.name, fmt::join(choices, "; ")));
  }
  return made;
}

const std::vector<ExportTarget>& export_targets() {
  static const std::vector<ExportTarget> targets{
      {"megatron",
       ".megatron.sh",
       "options of Megatron-LM, with its layout",
       &kMegatron,
       {.shares = true, .buckets_without_precision = true, .steps_by_bucket = true},
       export_megatron},
      {"deepspeed", ".deepspeed.py", "a PipelineModule of DeepSpeed and its settings", &kDeepSpeed,
       kGradients, export_deepspeed},
      {"torch-python",
       ".torch.py",
       "stages and their order for PyTorch's pipelining runtime",
       &kTorchModules,
       {.steps_by_bucket = true},
       export_torch_python},
      {"torch-csv", ".schedule.csv", "order of PyTorch's pipelining runtime", &kTorch, kOrderAlone,
       export_torch_csv},
      {"torchtitan",
       ".torchtitan.sh",
       "options of torchtitan",
       &kTorchtitan,
       {.order = true, .shares = true, .buckets = true, .steps_by_bucket = true},
       export_torchtitan},
      {"colossalai", ".colossalai.py", "arguments of ColossalAI's plugin", &kColossalAi, kShares,
       export_colossalai},
      {"nanotron", ".nanotron.yaml", "what a plan decides of nanotron's configuration", &kNanotron,
       kShares, export_nanotron},
      {"pipedream", ".pipedream.json", "a configuration of PipeDream's runtime", &kPipeDream,
       kGradients, export_pipedream},
      {"sailor",
       ".sailor.json",
       "a plan of Sailor",
       &kSailor,
       {.shares = true, .buckets = true, .steps_by_bucket = true, .devices = true},
       export_sailor},
      {"chakra",
       ".chakra",
       "execution traces",
       nullptr,
       {.shares = true, .devices = true},
       export_chakra,
       true},
      {"rankfile", ".rankfile", "placement for Open MPI", nullptr, kGpus, export_rankfile},
      {"hostfile", ".hostfile", "servers and their slots in the order of ranks", nullptr, kGpus,
       export_hostfile},
      {"visible-devices",
       ".sh",
       "a wrapper that gives each rank its GPU",
       nullptr,
       {.servers = true},
       export_visible_devices},
      {"ranks",
       ".ranks.sh",
       "a wrapper that gives each process its rank",
       nullptr,
       {},
       export_ranks}};
  return targets;
}

}  // namespace dapple::interop
