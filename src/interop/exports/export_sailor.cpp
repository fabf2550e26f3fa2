// Exports a plan in the form of Sailor (Strati et al., SOSP'25): the layers of each stage, and for
// each replica the kind of device, the number of GPUs of its server, and its zone, for which the
// whole topology stands.

#include <nlohmann/json.hpp>

#include "dapple/core/characters.h"
#include "interop/exports/exporting.h"

namespace dapple::interop {
namespace {

using Json = nlohmann::ordered_json;

/// Returns [[[kind, GPUs of its server, zone]], tensor-parallel degree].
Json replica_of(const ExportSubject& subject, DeviceIndex index) {
  const Device& device = subject.topology.device(index);
  const Server& server = subject.topology.server(device.server);
  const TopologyDescription& description = subject.topology.description();
  const std::int64_t degree = subject.document.profile.tensor_parallel;
  return Json::array(
      {Json::array({Json::array({description.devices[static_cast<std::size_t>(device.kind)].name,
                                 server.device_count * degree, description.name})}),
       degree});
}

}  // namespace

Export export_sailor(const ExportSubject& subject) {
  require_runs(subject, kSailor);
  const Plan& plan = subject.document.plan;
  Json layers = Json::array();
  Json replicas = Json::array();
  Json counts = Json::array();
  for (const StagePlan& stage : plan.stages) {
    Json numbers = Json::array();
    for (std::int32_t l = stage.layers.begin; l < stage.layers.end; ++l) numbers.push_back(l);
    layers.push_back(std::move(numbers));
    Json own = Json::array();
    for (const DeviceIndex device : stage.devices) own.push_back(replica_of(subject, device));
    replicas.push_back(std::move(own));
    counts.push_back(stage.devices.size());
  }
  Json pipeline;
  pipeline["num_stages"] = plan.stages.size();
  pipeline["layers_per_stage"] = std::move(layers);
  pipeline["tmp_per_stage"] = std::move(replicas);
  pipeline["dp"] = std::move(counts);
  Json document;
  document["pipeline_list"] = Json::array({std::move(pipeline)});
  document["mbs"] = samples_per_rank(plan);
  document["gbs"] = plan.global_batch_size;
  Export result;
  result.text =
      with_hidden_escaped(document.dump(-1, ' ', false, Json::error_handler_t::replace)) + '\n';
  return result;
}

}  // namespace dapple::interop
