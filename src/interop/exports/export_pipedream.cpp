// PipeDream's runtime: a configuration of which module is in which stage, which ranks that stage
// has, and how many micro-batches it runs before it takes turns. A module is a layer of the
// profile; the last one, the loss, is in the last stage.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "dapple/core/characters.h"
#include "interop/exports/exporting.h"

namespace dapple::interop {

namespace {

/// Of the stages that have replicas, which all share out the same.
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
    // Its turns begin with a forward, which the warm-up depth counts.
    depths[number] = plan.warmup_depths[s] - 1;
  }
  modules.push_back(plan.stages.size() - 1);
  nlohmann::ordered_json document;
  document["module_to_stage_map"] = std::move(modules);
  document["stage_to_rank_map"] = std::move(ranks);
  document["stage_to_depth_map"] = std::move(depths);
  // No keys of PipeDream's, which passes over them: for reading the file again.
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
      samples_per_replica(plan)));
  if (plan.stages.front().recompute) {
    result.warnings.emplace_back(
        "whether stages recompute is an option of PipeDream's program: --recompute");
  }
  return result;
}

}  // namespace dapple::interop
