#include "dapple/core/error.h"
#include "dapple/io/documents/documents.h"
#include "dapple/plan/validate.h"
#include "dapple/profile/boundary_shares.h"
#include "dapple/profile/skip_tensors.h"
#include "io/documents/embedded.h"
#include "io/documents/plan_parts.h"
#include "io/documents/request_json.h"
#include "io/runtime/runtime_json.h"

namespace dapple::io {
namespace {

using Layout = JsonWriter::Layout;

void write_model(JsonWriter& writer, const ModelProfile& profile) {
  writer.open_object(Layout::Lines);
  writer.key("name").text(profile.name);
  writer.key("sha256").text(hash_of(profile));
  write_profile(writer.key("profile"), profile);
  writer.close();
}

void write_description(JsonWriter& writer, const TopologyDescription& topology) {
  writer.open_object(Layout::Lines);
  writer.key("name").text(topology.name);
  writer.key("sha256").text(hash_of(topology));
  write_topology(writer.key("description"), topology);
  writer.close();
}

void write_schedule(JsonWriter& writer, const Plan& plan, const Topology& topology) {
  writer.open_object(Layout::Lines);
  writer.key("family").text(to_string(plan.family));
  writer.key("warmup_depths").open_array(Layout::Line);
  for (const std::int64_t depth : plan.warmup_depths) writer.integer(depth);
  writer.close();
  writer.key("chunks_per_device").integer(plan.chunks_per_device);
  writer.key("digest").text(schedule_digest(plan, topology));
  writer.key("order");
  if (carries_order(plan.family)) {
    writer.open_array(Layout::Lines);
    for (const std::vector<Action>& actions : plan.order) writer.text(to_text(actions));
    writer.close();
  } else {
    writer.null();
  }
  writer.close();
}

void write_stage_costs(JsonWriter& writer, const StagePlan& stage, const StageFigures& figures) {
  writer.open_object(Layout::Line);
  writer.key("forward_ns").integer(figures.forward.ns);
  writer.key("backward_ns").integer(figures.backward.ns);
  writer.key("send_bytes").integer(figures.send.count);
  writer.key("gradient_buckets_bytes").open_array(Layout::Line);
  for (const Bytes bucket : stage.gradient_buckets) writer.integer(bucket.count);
  writer.close();
  writer.key("all_reduce_ns").integer(figures.all_reduce.ns);
  writer.key("optimizer_step_ns").integer(figures.optimizer_step.ns);
  writer.close();
}

void write_stages(JsonWriter& writer, const PlanDocument& document, const Topology& topology) {
  writer.open_array(Layout::Lines);
  for (std::size_t i = 0; i < document.plan.stages.size(); ++i) {
    const StagePlan& stage = document.plan.stages[i];
    writer.open_object(Layout::Lines);
    writer.key("layers").open_array(Layout::Line);
    writer.integer(stage.layers.begin).integer(stage.layers.end).close();
    writer.key("devices").open_array(Layout::Line);
    for (const DeviceIndex device : stage.devices) writer.text(topology.device(device).name);
    writer.close();
    writer.key("replication").text(to_string(stage.replication));
    write_samples(writer, stage);
    writer.key("recompute").boolean(stage.recompute);
    if (stage.form != FormIndex{}) writer.key("form").integer(stage.form.value);
    write_stage_costs(writer.key("costs"), stage, document.prediction.stages[i]);
    writer.close();
  }
  writer.close();
}

void write_baselines(JsonWriter& writer, const std::vector<Baseline>& baselines) {
  writer.open_array(Layout::Lines);
  for (const Baseline& baseline : baselines) {
    writer.open_object(Layout::Line);
    writer.key("name").text(baseline.name);
    writer.key("shape").text(baseline.shape);
    writer.key("iteration_ns").integer(baseline.iteration.ns);
    write_time_parts(writer.key("time_parts"), baseline.parts);
    writer.key("feasible").boolean(baseline.feasible);
    writer.key("missing_bytes").integer(baseline.missing.count);
    writer.key("depth_limited").boolean(baseline.depth_limited);
    writer.close();
  }
  writer.close();
}

void write_search(JsonWriter& writer, const SearchRecord& search) {
  writer.open_object(Layout::Lines);
  writer.key("complete").boolean(search.complete);
  writer.key("planner").text(search.planner);
  writer.key("searched").texts(search.searched);
  writer.key("cut").texts(search.cut);
  if (!search.outside.empty()) writer.key("outside").text(search.outside);
  writer.key("states").integer(search.states);
  writer.key("candidates").integer(search.candidates);
  writer.key("simulated").integer(search.simulated);
  writer.key("open").integer(search.open);
  writer.key("kept").integer(search.kept);
  if (search.fastest) writer.key("fastest_ns").integer(search.fastest->ns);
  writer.close();
}

void write_nullable(JsonWriter& writer, const char* key, const std::optional<Duration>& time) {
  writer.key(key);
  if (time) {
    writer.integer(time->ns);
  } else {
    writer.null();
  }
}

/// Writes what came of a schedule family or a form of parallelism, and closes its object.
template <class Record>
void write_outcome(JsonWriter& writer, const Record& record) {
  write_nullable(writer, "iteration_ns", record.iteration);
  write_nullable(writer, "lower_bound_ns", record.lower_bound);
  writer.key("shape").text(record.shape);
  writer.key("missing_bytes").integer(record.missing.count);
  writer.key("reason").text(record.reason);
  writer.close();
}

void write_schedules(JsonWriter& writer, const std::vector<ScheduleRecord>& schedules) {
  writer.open_array(Layout::Lines);
  for (const ScheduleRecord& record : schedules) {
    writer.open_object(Layout::Line);
    writer.key("family").text(to_string(record.family));
    write_outcome(writer, record);
  }
  writer.close();
}

void write_parallelisms(JsonWriter& writer, const std::vector<ParallelismRecord>& records) {
  writer.open_array(Layout::Lines);
  for (const ParallelismRecord& record : records) {
    writer.open_object(Layout::Line);
    write_parallelism(writer.key("parallelism"), record.parallelism);
    write_stage_forms(writer, record.stage_forms);
    write_outcome(writer, record);
  }
  writer.close();
}

}  // namespace

void write_plan(JsonWriter& writer, const PlanDocument& document) {
  const Plan& plan = document.plan;
  check(document.prediction.stages.size() == plan.stages.size(),
        "a plan is written without the figures of its stages");
  const Topology topology(document.topology);
  const auto layers = static_cast<std::int32_t>(document.profile.layers.size());
  check(validate(plan, layers, topology).empty(), "a plan is written that is not sound");
  writer.open_object(Layout::Lines);
  writer.key("schema").text("dapple-plan/1");
  writer.key("tool").text(document.tool);
  write_model(writer.key("model"), document.original_profile());
  write_description(writer.key("topology"), document.original_topology());
  if (document.runtime) {
    writer.key("runtime_sha256").text(hash_of(*document.runtime));
    write_runtime(writer.key("runtime"), *document.runtime);
  }
  writer.key("global_batch_size").integer(plan.global_batch_size);
  writer.key("micro_batch_size").integer(plan.micro_batch_size);
  writer.key("num_micro_batches").integer(plan.num_micro_batches);
  if (plan.skip_tensors != SkipTensors::Forwarded) {
    writer.key("skip_tensors").text(to_string(plan.skip_tensors));
  }
  if (plan.boundaries != Boundaries::Whole) {
    writer.key("boundaries").text(to_string(plan.boundaries));
  }
  if (!plan.parallelism.is_none()) write_parallelism(writer.key("parallelism"), plan.parallelism);
  write_stage_forms(writer, plan.stage_forms);
  write_gradients(writer.key("gradients"), plan.gradients);
  write_schedule(writer.key("schedule"), plan, topology);
  write_stages(writer.key("stages"), document, topology);
  write_prediction(writer.key("predicted"), document.prediction, topology);
  write_baselines(writer.key("baselines"), document.baselines);
  if (document.request) write_request(writer.key("request"), *document.request);
  write_search(writer.key("search_space"), document.search);
  if (!document.schedules.empty()) { write_schedules(writer.key("schedules"), document.schedules); }
  if (!document.parallelisms.empty()) {
    write_parallelisms(writer.key("parallelisms"), document.parallelisms);
  }
  writer.key("warnings").texts(document.warnings);
  writer.close();
}

std::string write_plan(const PlanDocument& document) {
  JsonWriter writer;
  write_plan(writer, document);
  return writer.finish();
}

}  // namespace dapple::io
