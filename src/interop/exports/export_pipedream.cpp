// Exports a configuration of PipeDream's runtime: the stage of each module, the ranks of each
// stage, and the number of forwards that a stage runs before it alternates forwards and backwards.
// Modules are the layers of the profile, followed by the loss, which belongs to the last stage.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "dapple/core/characters.h"
#include "interop/exports/exporting.h"

namespace dapple::interop {

namespace {

/// Returns the replication of the stages with several replicas, which is the same for all of them.
Replication replication_of(const Plan& plan) {
  for (const StagePlan& stage : plan.stages) {
    if (stage.devices.size() > 1) return stage.replication;
  }
  return plan.stages.front().replication;
}

}  // namespace

Export export_pipedream(const ExportSubject& subject) {
  require_runs(subject, kPipeDream);
  const Plan& plan = subject.document.plan;
  nlohmann::ordered_json modules = nlohmann::ordered_json::array();
  nlohmann::ordered_json ranks = nlohmann::ordered_json::object();
  nlohmann::ordered_json depths = nlohmann::ordered_json::object();
  std::size_t rank = 0;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const StagePlan& stage = plan.stages[s];
    for (std::int32_t l = stage.layers.begin; l < stage.layers.end; ++l) modules.push_back(s);
    const std::string number = fmt::format("{}", s);
    for (std::size_t i = 0; i < stage.devices.size(); ++i) ranks[number].push_back(rank++);
    // The steady phase begins with a forward, which the warm-up depth includes.
    depths[number] = plan.warmup_depths[s] - 1;
  }
  modules.push_back(plan.stages.size() - 1);
  nlohmann::ordered_json document;
  document["module_to_stage_map"] = std::move(modules);
  document["stage_to_rank_map"] = std::move(ranks);
  document["stage_to_depth_map"] = std::move(depths);
  // The following keys are not PipeDream's, which ignores them; import reads them back.
  document["global_batch_size"] = plan.global_batch_size;
  document["micro_batch_size"] = plan.micro_batch_size;
  document["replication"] = to_string(replication_of(plan));
  document["recompute"] = plan.stages.front().recompute;
  nlohmann::ordered_json devices = nlohmann::ordered_json::array();
  for (const DeviceIndex device : devices_by_rank(plan)) {
    devices.push_back(subject.topology.device(device).name);
  }
  document["rank_to_device_map"] = std::move(devices);
  Export result;
  result.text = with_hidden_escaped(document.dump()) + '\n';
  result.warnings.emplace_back(
      "PipeDream updates parameters after every micro-batch, with gradients of older ones: the "
      "plan is for one update of all micro-batches");
  result.warnings.push_back(fmt::format(
      "each process has its batch from an option of PipeDream's program: --batch-size {}",
      samples_per_rank(plan)));
  if (plan.stages.front().recompute) {
    result.warnings.emplace_back(
        "whether stages recompute is an option of PipeDream's program: --recompute");
  }
  return result;
}

}  // namespace dapple::interop
