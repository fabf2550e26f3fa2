#include "dapple/io/documents/comparison_document.h"

#include "dapple/io/documents/documents.h"
#include "dapple/profile/boundary_shares.h"
#include "dapple/profile/skip_tensors.h"
#include "io/documents/plan_parts.h"
#include "io/json/json_writer.h"

namespace dapple::io {
namespace {

using Layout = JsonWriter::Layout;

void write_source(JsonWriter& writer, const std::string& name, const std::string& hash) {
  writer.open_object(Layout::Line);
  writer.key("name").text(name);
  writer.key("sha256").text(hash);
  writer.close();
}

/// Writes what was chosen, and what it takes; how stages send, where that is not as in `mode`.
void write_plan_figures(JsonWriter& writer, const ComparedPlan& compared, SimulationMode mode) {
  const Plan& plan = compared.plan;
  const Prediction& prediction = compared.prediction;
  writer.open_object(Layout::Lines);
  writer.key("name").text(compared.name);
  writer.key("global_batch_size").integer(plan.global_batch_size);
  writer.key("micro_batch_size").integer(plan.micro_batch_size);
  writer.key("num_micro_batches").integer(plan.num_micro_batches);
  writer.key("family").text(to_string(plan.family));
  writer.key("chunks_per_device").integer(plan.chunks_per_device);
  if (plan.skip_tensors != SkipTensors::Forwarded) {
    writer.key("skip_tensors").text(to_string(plan.skip_tensors));
  }
  if (plan.boundaries != Boundaries::Whole) {
    writer.key("boundaries").text(to_string(plan.boundaries));
  }
  write_gradients(writer.key("gradients"), plan.gradients);
  if (prediction.transfers != mode.transfers) {
    writer.key("transfers").text(to_string(prediction.transfers));
  }
  if (!plan.parallelism.is_none()) write_parallelism(writer.key("parallelism"), plan.parallelism);
  writer.key("iteration_ns").integer(prediction.iteration.ns);
  writer.key("samples_per_second").number(prediction.samples_per_second);
  writer.key("bubble_fraction").number(prediction.bubble_fraction);
  writer.key("exposed_transfer_ns").integer(prediction.exposed_transfer.ns);
  writer.key("exposed_all_reduce_ns").integer(prediction.exposed_all_reduce.ns);
  write_time_parts(writer.key("time_parts"), prediction.parts);
  writer.close();
}

/// Returns by how much each part of the second is longer. The differences add up to that of the
/// iterations.
TimeParts difference_of(const TimeParts& first, const TimeParts& second) {
  TimeParts parts;
  for (const TimePart& part : kTimeParts) {
    parts.*part.part = second.*part.part - first.*part.part;
  }
  return parts;
}

void write_device_names(JsonWriter& writer, const std::vector<DeviceIndex>& devices,
                        const Topology& topology) {
  writer.open_array(Layout::Line);
  for (const DeviceIndex device : devices) writer.text(topology.device(device).name);
  writer.close();
}

void write_layers(JsonWriter& writer, LayerRange layers) {
  writer.open_array(Layout::Line);
  writer.integer(layers.begin).integer(layers.end).close();
}

void write_stage(JsonWriter& writer, const ComparedPlan& compared,
                 const std::optional<StageIndex>& index, const Topology& topology) {
  if (!index) {
    writer.null();
    return;
  }
  const StagePlan& stage = compared.plan.stages[index->position()];
  const StageFigures& figures = compared.prediction.stages[index->position()];
  writer.open_object(Layout::Line);
  writer.key("stage").integer(index->value);
  write_layers(writer.key("layers"), stage.layers);
  write_device_names(writer.key("devices"), stage.devices, topology);
  writer.key("replication").text(to_string(stage.replication));
  write_samples(writer, stage);
  writer.key("recompute").boolean(stage.recompute);
  if (!compared.plan.stage_forms.empty()) {
    write_parallelism(writer.key("parallelism"), form_of(compared.plan, stage));
  }
  writer.key("warmup_depth").integer(compared.plan.warmup_depths[index->position()]);
  writer.key("forward_ns").integer(figures.forward.ns);
  writer.key("backward_ns").integer(figures.backward.ns);
  writer.key("all_reduce_ns").integer(figures.all_reduce.ns);
  writer.key("optimizer_step_ns").integer(figures.optimizer_step.ns);
  writer.close();
}

void write_numbers(JsonWriter& writer, const std::vector<StageIndex>& stages) {
  writer.open_array(Layout::Line);
  for (const StageIndex stage : stages) writer.integer(stage.value);
  writer.close();
}

void write_moves(JsonWriter& writer, const PlanDifference& plans, const Topology& topology) {
  writer.key("moved_layers").open_array(Layout::Lines);
  for (const MovedLayers& moved : plans.layers) {
    writer.open_object(Layout::Line);
    write_layers(writer.key("layers"), moved.layers);
    writer.key("from").integer(moved.from.value);
    writer.key("to").integer(moved.to.value);
    writer.close();
  }
  writer.close();
  writer.key("moved_devices").open_array(Layout::Lines);
  for (const MovedDevices& moved : plans.devices) {
    writer.open_object(Layout::Line);
    write_device_names(writer.key("devices"), moved.devices, topology);
    write_numbers(writer.key("from"), moved.from);
    write_numbers(writer.key("to"), moved.to);
    writer.close();
  }
  writer.close();
}

void write_peak(JsonWriter& writer, const std::optional<Bytes>& peak) {
  if (peak) {
    writer.integer(peak->count);
  } else {
    writer.null();
  }
}

void write_memory(JsonWriter& writer, const ComparedPair& pair) {
  writer.open_array(Layout::Lines);
  for (const MemoryPair& memory : memory_pairs(pair.first.prediction, pair.second.prediction)) {
    writer.open_object(Layout::Line);
    writer.key("device").text(pair.topology.device(memory.device).name);
    write_peak(writer.key("a_peak_bytes"), memory.first);
    write_peak(writer.key("b_peak_bytes"), memory.second);
    writer.key("limit_bytes").integer(memory.limit.count);
    writer.close();
  }
  writer.close();
}

}  // namespace

std::string write_comparison_json(const ComparisonDocument& document) {
  const ComparedPair& pair = document.pair;
  const Prediction& a = pair.first.prediction;
  const Prediction& b = pair.second.prediction;
  const TopologyDescription& topology = pair.topology.description();
  const PlanDifference plans = difference(pair.first.plan, pair.second.plan);
  JsonWriter writer(JsonWriter::Hidden::Escaped);
  writer.open_object(JsonWriter::Layout::Lines);
  writer.key("schema").text("dapple-comparison/1");
  writer.key("tool").text(document.tool);
  write_source(writer.key("model"), pair.profile.name, hash_of(pair.profile));
  write_source(writer.key("topology"), topology.name, hash_of(topology));
  write_contention(writer, document.mode.contention);
  writer.key("replicas").text(to_string(document.mode.replicas));
  if (document.mode.blocks()) writer.key("transfers").text(to_string(document.mode.transfers));
  writer.key("notes").texts(pair.notes);
  write_plan_figures(writer.key("a"), pair.first, document.mode);
  write_plan_figures(writer.key("b"), pair.second, document.mode);
  writer.key("same_plan").boolean(same_plan(pair.first.plan, pair.second.plan));
  writer.key("b_less_a_ns").integer((b.iteration - a.iteration).ns);
  write_time_parts(writer.key("b_less_a"), difference_of(a.parts, b.parts));
  write_moves(writer, plans, pair.topology);
  write_memory(writer.key("memory"), pair);
  writer.key("stages").open_array(JsonWriter::Layout::Lines);
  for (const StagePair& both : plans.stages) {
    writer.open_object(JsonWriter::Layout::Lines);
    write_stage(writer.key("a"), pair.first, both.first, pair.topology);
    write_stage(writer.key("b"), pair.second, both.second, pair.topology);
    writer.close();
  }
  writer.close();
  writer.close();
  return writer.finish();
}

}  // namespace dapple::io
