// Imports plans of Sailor's planner, which state the layers of each stage, and for each replica the
// kind of its GPUs and their number, the tensor-parallel degree.

#include <fmt/format.h>

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/io/json/json_reader.h"
#include "interop/plans/plan_formats.h"
#include "interop/plans/plan_sketch.h"
#include "interop/text/foreign_json.h"
#include "interop/text/foreign_text.h"

namespace dapple::interop {
namespace {

using io::ArrayReader;
using io::Field;
using io::ObjectReader;

constexpr io::IntegerRange kNumbers{0, 999'999};
constexpr io::IntegerRange kDegrees{1, 1024};

/// The kind and the number of the GPUs of a stage's replica.
struct Group {
  std::string kind;
  std::int64_t degree = 1;
};

struct SailorPlan {
  std::vector<LayerRange> stages;
  std::vector<std::vector<Group>> groups;  // by stage and replica
  // The samples of a micro-batch that one replica processes.
  std::optional<std::int64_t> samples;
  std::optional<std::int64_t> global_batch;
};

/// Reads the numbers of a stage's layers, which must be consecutive.
LayerRange read_layers(const Field& field) {
  const ArrayReader array(field, "an array with the numbers of the stage's layers");
  LayerRange range;
  for (std::size_t i = 0; i < array.size(); ++i) {
    const auto number = io::read_integer(array.at(i), kNumbers);
    if (!number) return range;
    const auto layer = static_cast<std::int32_t>(*number);
    if (i == 0) range = {layer, layer};
    if (layer != range.end) {
      array.at(i).add(fmt::format("expected layer {} behind layer {}, got {}", range.end,
                                  range.end - 1, layer));
      return range;
    }
    ++range.end;
  }
  return range;
}

/// Reads a replica [[[kind, GPUs of a node, zone], ...], degree].
Group read_group(const Field& field) {
  constexpr const char* kExpected = "a replica as [[[GPU, GPUs of a node, zone], ...], degree]";
  const ArrayReader pair(field, kExpected);
  Group group;
  if (!pair.valid()) return group;
  if (pair.size() != 2) {
    field.refuse(kExpected);
    return group;
  }
  const ArrayReader nodes(pair.at(0), "an array of nodes");
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const ArrayReader node(nodes.at(i), "a node as [GPU, GPUs of a node, zone]");
    if (!node.valid()) continue;
    if (node.size() == 0) {
      nodes.at(i).refuse("a node as [GPU, GPUs of a node, zone]");
      continue;
    }
    const std::string kind = io::read_name(node.at(0)).value_or("");
    if (group.kind.empty()) group.kind = kind;
    if (group.kind != kind) {
      node.at(0).add(fmt::format("expected GPUs of one kind in a replica, {}, got {}",
                                 shown(group.kind), shown(kind)));
    }
  }
  if (nodes.valid() && nodes.size() == 0) pair.at(0).add("expected one node or more, got none");
  group.degree = io::required_integer(pair.at(1), kDegrees);
  return group;
}

void read_pipeline(const Field& field, SailorPlan& plan) {
  ObjectReader pipeline(field);
  if (!pipeline.valid()) return;
  const Field layers_field = pipeline.field("layers_per_stage");
  const Field groups_field = pipeline.field("tmp_per_stage");
  const ArrayReader layers(layers_field, "an array with the layers of each stage");
  const ArrayReader groups(groups_field, "an array with the replicas of each stage");
  for (std::size_t s = 0; s < layers.size(); ++s) plan.stages.push_back(read_layers(layers.at(s)));
  for (std::size_t s = 0; s < groups.size(); ++s) {
    const ArrayReader replicas(groups.at(s), "an array with the replicas of a stage");
    std::vector<Group>& stage = plan.groups.emplace_back();
    for (std::size_t r = 0; r < replicas.size(); ++r) stage.push_back(read_group(replicas.at(r)));
  }
  if (layers.valid() && layers.size() == 0)
    layers_field.add("expected one stage or more, got none");
  if (groups.valid() && groups.size() != layers.size()) {
    groups_field.add(fmt::format("expected the replicas of {} stages, got those of {}",
                                 layers.size(), groups.size()));
  }
  const auto stages = static_cast<std::int64_t>(layers.size());
  if (const Field count = pipeline.field("num_stages"); count.present()) {
    if (io::required_integer(count, kNumbers) != stages && layers.valid()) {
      count.add(
          fmt::format("expected {}, the stages that have layers, got another number", stages));
    }
  }
}

SailorPlan read_plan_of(const Field& field) {
  SailorPlan plan;
  ObjectReader document(field);
  if (!document.valid()) return plan;
  const Field list = document.field("pipeline_list");
  const ArrayReader pipelines(list, "an array of pipelines");
  if (!pipelines.valid()) return plan;
  if (pipelines.size() != 1) {
    list.add(
        fmt::format("expected one pipeline, as a plan has only one, got {}", pipelines.size()));
    return plan;
  }
  read_pipeline(pipelines.at(0), plan);
  if (const Field mbs = document.field("mbs"); mbs.present()) {
    plan.samples = io::read_integer(mbs, {1, 999'999'999});
  }
  if (const Field gbs = document.field("gbs"); gbs.present()) {
    plan.global_batch = io::read_integer(gbs, io::kSampleRange);
  }
  return plan;
}

/// Allocates devices of a topology by kind, each once, in their order.
class DevicesByKind {
 public:
  DevicesByKind(const Topology& topology, std::string source) : source_(std::move(source)) {
    for (DeviceIndex device{0}; device.value < topology.device_count(); device = device.next()) {
      left_[topology.kind_of(device).name].push_back(device);
    }
  }

  DeviceIndex take(const std::string& kind, std::size_t stage) {
    const auto found = left_.find(kind);
    if (found != left_.end() && !found->second.empty()) {
      const DeviceIndex device = found->second.front();
      found->second.pop_front();
      return device;
    }
    throw Error{ErrorKind::BadInput,
                source_,
                {{fmt::format("/pipeline_list/0/tmp_per_stage/{}", stage),
                  fmt::format("expected another device of the kind {} in the topology, got no more",
                              shown(kind))}}};
  }

 private:
  std::string source_;
  std::map<std::string, std::deque<DeviceIndex>> left_;
};

std::int64_t degree_of(const SailorPlan& plan, const std::string& source) {
  std::optional<std::int64_t> degree;
  for (std::size_t s = 0; s < plan.groups.size(); ++s) {
    for (const Group& group : plan.groups[s]) {
      if (!degree) degree = group.degree;
      if (*degree == group.degree) continue;
      throw Error{ErrorKind::BadInput,
                  source,
                  {{fmt::format("/pipeline_list/0/tmp_per_stage/{}", s),
                    fmt::format("expected one tensor-parallel degree, {}, as devices stand for as "
                                "many GPUs each, got {}",
                                *degree, group.degree)}}};
    }
  }
  return degree.value_or(1);
}

}  // namespace

bool is_sailor_plan(const io::JsonValue& object) {
  return has_key(object, "pipeline_list");
}

ImportedPlan import_sailor_plan(const std::vector<ForeignPlanFile>& files, const PlanGround& ground,
                                const ForeignPlanOptions& options) {
  const ForeignPlanFile& file = files.front();
  const SailorPlan plan = io::read_document<SailorPlan>(file.text, file.name, read_plan_of);
  check_degree(degree_of(plan, file.name), ground.profile, options, file.name);
  if (!options.replicas.empty()) {
    throw Error{ErrorKind::Usage,
                file.name,
                {{"--replicas", "expected none for a Sailor plan, which says them, got some"}}};
  }
  PlanSketch sketch;
  sketch.source = file.name;
  sketch.stages = plan.stages;
  DevicesByKind devices(ground.topology, file.name);
  std::int32_t next = 0;
  for (std::size_t s = 0; s < plan.groups.size(); ++s) {
    std::vector<DeviceIndex> taken;
    std::vector<std::int32_t> ranks;
    for (const Group& group : plan.groups[s]) {
      if (options.devices.empty()) taken.push_back(devices.take(group.kind, s));
      ranks.push_back(next++);
    }
    if (options.devices.empty()) {
      sketch.devices.push_back(std::move(taken));
    } else {
      sketch.ranks.push_back(std::move(ranks));
    }
  }
  sketch.global_batch = plan.global_batch;
  if (plan.samples && !plan.groups.empty()) {
    sketch.micro_batch = *plan.samples * static_cast<std::int64_t>(plan.groups.front().size());
  }
  return {.profile = ground.profile, .plan = plan_of(sketch, ground, options), .warnings = {}};
}

}  // namespace dapple::interop
