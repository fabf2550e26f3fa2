#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "dapple/core/characters.h"
#include "dapple/cost/device_groups.h"
#include "dapple/io/documents/documents.h"
#include "dapple/plan/runtime.h"
#include "dapple/plan/validate.h"
#include "dapple/profile/limits.h"
#include "io/documents/embedded.h"
#include "io/documents/plan_parts.h"
#include "io/documents/request_json.h"
#include "io/runtime/runtime_json.h"

namespace dapple::io {
namespace {

constexpr IntegerRange kLayerRange{0, kMaxLayers};
constexpr IntegerRange kDepthRange{0, kSampleRange.most};
constexpr IntegerRange kChunkRange{1, kLayerRange.most};
constexpr IntegerRange kBucketRange{1, kMaxCount};
/// The largest product of micro-batches and devices, to which the length of the text that is hashed
/// for the schedule digest is proportional.
constexpr std::int64_t kMaxDevicePasses = 20'000'000;

/// Finds a topology's devices by name. If the topology is invalid, it finds none and reports
/// nothing.
class DeviceNames {
 public:
  /// Builds the topology if the description was read without violations (`is_sound`). Records the
  /// violations that prevent that.
  DeviceNames(const TopologyDescription& description, const Field& field, bool is_sound);

  DeviceIndex read(const Field& field) const;
  const std::shared_ptr<const Topology>& topology() const { return topology_; }

 private:
  std::shared_ptr<const Topology> topology_;
};

DeviceNames::DeviceNames(const TopologyDescription& description, const Field& field,
                         bool is_sound) {
  if (!is_sound) return;
  try {
    topology_ = std::make_shared<Topology>(description);
  } catch (const Error& error) { field.add_all(error.violations()); }
}

DeviceIndex DeviceNames::read(const Field& field) const {
  // It may be longer than a name, as it has the server's and numbers behind it.
  const std::optional<std::string> name = read_text(field);
  if (!name || topology_ == nullptr) return {};
  const std::optional<DeviceIndex> device = topology_->find_device(*name);
  if (!device) {
    const std::int64_t size = topology_->description().group_size;
    field.refuse(
        fmt::format("the name of a device{} of the topology, such as \"{}\"",
                    size == 1 ? "" : fmt::format(", here a group of {},", size),
                    printable(topology_->device(DeviceIndex{topology_->device_count() - 1}).name)));
  }
  return device.value_or(DeviceIndex{});
}

std::string wrong_hash(std::string_view what, const std::string& expected,
                       const std::string& found) {
  return fmt::format("expected the SHA-256 of {}, {}, got \"{}\"", what, expected, found);
}

/// Records a violation if the hash in the file is not that of the content.
void check_hash(const Field& field, const std::string& expected, std::string_view what) {
  const std::optional<std::string> found = read_hash(field);
  if (found && *found != expected) field.add(wrong_hash(what, expected, *found));
}

void check_name(const Field& field, const std::string& expected) {
  const std::optional<std::string> name = read_name(field);
  if (name && *name != expected)
    field.refuse(fmt::format("the name in the document next to it, \"{}\"", expected));
}

ModelProfile read_model(const Field& field) {
  ObjectReader object(field);
  const Field name = object.field("name");
  const Field hash = object.field("sha256");
  const std::size_t faults_before = object.valid() ? field.violations()->count() : 0;
  ModelProfile profile = read_profile(object.field("profile"));
  object.finish();
  if (!object.valid() || field.violations()->count() != faults_before) return profile;
  check_name(name, profile.name);
  check_hash(hash, hash_of(profile), "the profile in its canonical form");
  return profile;
}

/// Reads `description`. Returns whether it was read without violations.
bool read_description(const Field& field, TopologyDescription& description) {
  ObjectReader object(field);
  const Field name = object.field("name");
  const Field hash = object.field("sha256");
  const std::size_t faults_before = object.valid() ? field.violations()->count() : 0;
  description = read_topology(object.field("description"));
  object.finish();
  if (!object.valid() || field.violations()->count() != faults_before) return false;
  check_name(name, description.name);
  check_hash(hash, hash_of(description), "the topology in its canonical form");
  return true;
}

LayerRange read_layer_range(const Field& field) {
  const ArrayReader array(field, "two layer numbers, the first and the one behind the last");
  if (!array.valid()) return {};
  if (array.size() != 2) {
    field.add(fmt::format("expected two layer numbers, got {}", array.size()));
    return {};
  }
  return {static_cast<std::int32_t>(required_integer(array.at(0), kLayerRange)),
          static_cast<std::int32_t>(required_integer(array.at(1), kLayerRange))};
}

std::vector<Bytes> read_buckets(const Field& field) {
  const ArrayReader array(field, "an array of sizes");
  std::vector<Bytes> buckets;
  for (std::size_t i = 0; i < array.size(); ++i)
    buckets.push_back(Bytes{required_integer(array.at(i), {})});
  return buckets;
}

void read_stage_costs(const Field& field, StagePlan& stage, StageFigures& figures) {
  ObjectReader object(field);
  figures.forward.ns = required_integer(object.field("forward_ns"), {});
  figures.backward.ns = required_integer(object.field("backward_ns"), {});
  figures.send.count = required_integer(object.field("send_bytes"), {});
  stage.gradient_buckets = read_buckets(object.field("gradient_buckets_bytes"));
  figures.all_reduce.ns = required_integer(object.field("all_reduce_ns"), {});
  figures.optimizer_step.ns = required_integer(object.field("optimizer_step_ns"), {});
  object.finish();
}

void read_stages(const Field& field, const DeviceNames& names, PlanDocument& document) {
  const ArrayReader array(field, "an array of stages");
  for (std::size_t i = 0; i < array.size(); ++i) {
    ObjectReader object(array.at(i));
    StagePlan& stage = document.plan.stages.emplace_back();
    StageFigures& figures = document.prediction.stages.emplace_back();
    stage.layers = read_layer_range(object.field("layers"));
    const ArrayReader devices(object.field("devices"), "an array of device names");
    for (std::size_t k = 0; k < devices.size(); ++k)
      stage.devices.push_back(names.read(devices.at(k)));
    const auto replication = read_choice(object.field("replication"), {"split", "deal"});
    stage.replication = replication == 1U ? Replication::Deal : Replication::Split;
    if (const Field samples = object.field("samples"); samples.present()) {
      stage.samples = read_samples(samples);
    }
    stage.recompute = read_boolean(object.field("recompute")).value_or(false);
    const IntegerRange forms{0, std::ssize(document.plan.stage_forms)};
    stage.form.value = static_cast<std::int32_t>(optional_integer(object.field("form"), forms, 0));
    read_stage_costs(object.field("costs"), stage, figures);
    object.finish();
  }
}

/// Drops the shares of stages whose shares are those that they have without.
void forget_equal_shares(Plan& plan) {
  for (StagePlan& stage : plan.stages) {
    const bool is_complete = std::ssize(stage.samples) == replicas_of(stage);
    if (is_complete && are_equal_shares(plan.micro_batch_size, stage.samples)) {
      stage.samples.clear();
    }
  }
}

GradientSynchronization read_gradients(const Field& field) {
  GradientSynchronization gradients;
  if (!field.present()) return gradients;
  ObjectReader object(field);
  gradients.bucket_size.count = required_integer(object.field("bucket_bytes"), kBucketRange);
  constexpr OptimizerTiming kTimings[] = {OptimizerTiming::AtEnd, OptimizerTiming::PerBucket};
  std::vector<std::string_view> names;
  for (const OptimizerTiming timing : kTimings) names.push_back(to_string(timing));
  gradients.optimizer = kTimings[read_choice(object.field("optimizer_step"), names).value_or(0)];
  if (const Field overlap = object.field("overlap"); overlap.present()) {
    gradients.overlaps = read_gradient_overlap(overlap);
  }
  object.finish();
  return gradients;
}

ScheduleFamily read_family(const Field& field) {
  std::vector<std::string_view> names;
  for (const ScheduleFamily family : kScheduleFamilies) names.push_back(to_string(family));
  return kScheduleFamilies[read_choice(field, names).value_or(0)];
}

/// Reads the forwards and backwards of an order in text form. Communication is not stated because
/// it follows from them.
std::vector<Action> read_computations(const Field& field) {
  const JsonValue* value = field.value_of_kind(JsonValue::Kind::Text);
  if (value == nullptr) {
    field.refuse("a text of actions such as \"0F0 0F1 0B0 0B1\"");
    return {};
  }
  try {
    std::vector<Action> actions = parse_actions(value->text);
    for (const Action& action : actions) {
      if (stream_of(action.kind) == Stream::Compute && action.kind != ActionKind::OptimizerStep) {
        continue;
      }
      field.add(fmt::format("expected forwards and backwards only, got {}", to_text(action)));
      return {};
    }
    return actions;
  } catch (const Error& error) {
    field.add(error.violations().front().message);
    return {};
  }
}

/// Reads the schedule into `plan` and returns the field of the digest.
Field read_schedule(ObjectReader& object, Plan& plan) {
  plan.family = read_family(object.field("family"));
  const ArrayReader depths(object.field("warmup_depths"), "an array of warm-up depths");
  for (std::size_t i = 0; i < depths.size(); ++i)
    plan.warmup_depths.push_back(required_integer(depths.at(i), kDepthRange));
  const Field chunks = object.field("chunks_per_device");
  plan.chunks_per_device = read_integer(chunks, kChunkRange).value_or(1);
  const Field digest = object.field("digest");
  const Field order = object.field("order");
  if (order.value_of_kind(JsonValue::Kind::Null) == nullptr) {
    constexpr const char* kExpected = "null, or a text of actions for each group of devices";
    const ArrayReader lists(order, kExpected);
    if (lists.valid() && lists.size() == 0) order.refuse(kExpected);
    for (std::size_t i = 0; i < lists.size(); ++i)
      plan.order.push_back(read_computations(lists.at(i)));
  }
  object.finish();
  return digest;
}

std::optional<Duration> read_time(const Field& field) {
  const std::optional<std::int64_t> ns = read_integer(field, {});
  return ns ? std::optional(Duration{*ns}) : std::nullopt;
}

std::vector<DeviceFigures> read_device_figures(const Field& field, const DeviceNames& names) {
  const ArrayReader array(field, "an array of devices");
  std::vector<DeviceFigures> devices;
  for (std::size_t i = 0; i < array.size(); ++i) {
    ObjectReader object(array.at(i));
    DeviceFigures& figures = devices.emplace_back();
    figures.device = names.read(object.field("device"));
    figures.peak_memory.count = required_integer(object.field("peak_memory_bytes"), {});
    figures.memory_limit.count = required_integer(object.field("memory_limit_bytes"), {});
    figures.busy_fraction = read_number(object.field("busy_fraction"), {0, 1}).value_or(0);
    object.finish();
  }
  return devices;
}

TimeParts read_parts(const Field& field) {
  ObjectReader object(field);
  TimeParts parts;
  for (const TimePart& part : kTimeParts) {
    const Field time = object.field(part.key);
    if (part.is_optional && !time.present()) continue;
    (parts.*part.part).ns = required_integer(time, {});
  }
  object.finish();
  return parts;
}

/// Reads how the iteration of a plan with so many stages varies.
JitterFigures read_jitter_figures(const Field& field, std::size_t stages) {
  ObjectReader object(field);
  JitterFigures jitter;
  jitter.median.ns = required_integer(object.field("median_ns"), {});
  jitter.ninety_fifth.ns = required_integer(object.field("percentile_95_ns"), {});
  jitter.draws = required_integer(object.field("draws"), {1, kMaxCount});
  const Field slow = object.field("slow_device_ns");
  const ArrayReader array(slow, "an array with a time for each stage");
  for (std::size_t i = 0; i < array.size(); ++i) {
    jitter.with_slow_device.push_back({required_integer(array.at(i), {})});
  }
  if (array.valid() && array.size() != stages) slow.refuse("a time for each stage");
  const Field worst = object.field("worst_stage");
  const std::int64_t stage = required_integer(worst, {});
  const bool is_whole = !jitter.with_slow_device.empty();
  if (is_whole && stage != jitter.worst_stage().value) {
    worst.refuse(fmt::format("{}, the stage of the longest time", jitter.worst_stage().value));
  }
  object.finish();
  return jitter;
}

/// Reads the prediction of a plan with so many stages.
void read_prediction(const Field& field, const DeviceNames& names, std::size_t stages,
                     Prediction& prediction) {
  const auto read_figure = [](const Field& figure) { return read_number(figure, {}); };
  const auto read_fraction = [](const Field& fraction) { return read_number(fraction, {0, 1}); };
  ObjectReader object(field);
  // Files of version 0.1.0 do not state the contention. They were simulated with shared links
  // unless a warning says otherwise.
  prediction.contention = read_contention(object, /*is_required=*/false);
  const Field replicas = object.field("replicas");
  if (replicas.present() && read_choice(replicas, {"together", "independent"}) == 1U) {
    prediction.replicas = Replicas::Independent;
  }
  if (const Field transfers = object.field("transfers"); transfers.present()) {
    prediction.transfers = read_transfers(transfers);
  }
  prediction.iteration.ns = required_integer(object.field("iteration_ns"), {});
  prediction.samples_per_second = read_figure(object.field("samples_per_second")).value_or(0);
  prediction.speedup_over_one_device =
      read_nullable<double>(object.field("speedup_over_one_device"), read_figure);
  prediction.lower_bound = read_nullable<Duration>(object.field("lower_bound_ns"), read_time);
  prediction.optimality_gap = read_nullable<double>(object.field("optimality_gap"), read_fraction);
  prediction.bubble_fraction = read_fraction(object.field("bubble_fraction")).value_or(0);
  prediction.exposed_transfer.ns = required_integer(object.field("exposed_transfer_ns"), {});
  prediction.exposed_all_reduce.ns = required_integer(object.field("exposed_all_reduce_ns"), {});
  prediction.parts = read_parts(object.field("time_parts"));
  prediction.devices = read_device_figures(object.field("devices"), names);
  if (const Field jitter = object.field("jitter"); jitter.present()) {
    prediction.jitter = read_jitter_figures(jitter, stages);
  }
  object.finish();
}

std::vector<Baseline> read_baselines(const Field& field) {
  const ArrayReader array(field, "an array of baselines");
  std::vector<Baseline> baselines;
  for (std::size_t i = 0; i < array.size(); ++i) {
    ObjectReader object(array.at(i));
    Baseline& baseline = baselines.emplace_back();
    baseline.name = read_name(object.field("name")).value_or("");
    baseline.shape = read_text(object.field("shape")).value_or("");
    baseline.iteration.ns = required_integer(object.field("iteration_ns"), {});
    baseline.parts = read_parts(object.field("time_parts"));
    baseline.feasible = read_boolean(object.field("feasible")).value_or(true);
    baseline.missing.count = required_integer(object.field("missing_bytes"), {});
    baseline.depth_limited = read_boolean(object.field("depth_limited")).value_or(false);
    object.finish();
  }
  return baselines;
}

SearchRecord read_search(const Field& field) {
  ObjectReader object(field);
  SearchRecord search;
  search.complete = read_boolean(object.field("complete")).value_or(false);
  search.planner = read_name(object.field("planner")).value_or("");
  search.searched = read_texts(object.field("searched"));
  search.cut = read_texts(object.field("cut"));
  search.outside = optional_text(object.field("outside"));
  search.states = required_integer(object.field("states"), {});
  search.candidates = required_integer(object.field("candidates"), {});
  search.simulated = required_integer(object.field("simulated"), {});
  search.open = required_integer(object.field("open"), {});
  search.kept = required_integer(object.field("kept"), {});
  if (const Field fastest = object.field("fastest_ns"); fastest.present()) {
    search.fastest = read_time(fastest);
  }
  object.finish();
  return search;
}

/// Reads what came of a schedule family or a form of parallelism.
template <class Record>
void read_outcome(ObjectReader& object, Record& record) {
  record.iteration = read_nullable<Duration>(object.field("iteration_ns"), read_time);
  record.lower_bound = read_nullable<Duration>(object.field("lower_bound_ns"), read_time);
  record.shape = read_text(object.field("shape")).value_or("");
  record.missing.count = required_integer(object.field("missing_bytes"), {});
  record.reason = read_text(object.field("reason")).value_or("");
  object.finish();
}

/// Reads the schedule families that were considered. Only plans for which there were several have
/// this key.
std::vector<ScheduleRecord> read_schedule_records(const Field& field) {
  std::vector<ScheduleRecord> records;
  if (!field.present()) return records;
  constexpr const char* kExpected = "records of one or more schedule families, or no such key";
  const ArrayReader array(field, kExpected);
  if (array.valid() && array.size() == 0) field.refuse(kExpected);
  for (std::size_t i = 0; i < array.size(); ++i) {
    ObjectReader object(array.at(i));
    ScheduleRecord& record = records.emplace_back();
    record.family = read_family(object.field("family"));
    read_outcome(object, record);
  }
  return records;
}

/// Reads the forms of parallelism that were considered. Only plans for which there were several
/// have this key.
std::vector<ParallelismRecord> read_parallelism_records(const Field& field) {
  std::vector<ParallelismRecord> records;
  if (!field.present()) return records;
  constexpr const char* kExpected = "records of two or more forms of parallelism, or no such key";
  const ArrayReader array(field, kExpected);
  if (array.valid() && array.size() < 2) field.refuse(kExpected);
  for (std::size_t i = 0; i < array.size(); ++i) {
    ObjectReader object(array.at(i));
    ParallelismRecord& record = records.emplace_back();
    record.parallelism = read_parallelism(object.field("parallelism"));
    record.stage_forms = read_stage_forms(object.field("stage_forms"));
    read_outcome(object, record);
  }
  return records;
}

/// Forms the groups of a plan with parallelism: its document then has the profile and the topology
/// as each device of a group sees them. Returns whether there are such groups.
bool group_document(const Field& field, const Field& stage_forms, PlanDocument& document) {
  const Parallelism& parallelism = document.plan.parallelism;
  try {
    auto grouped = group_inputs(document.profile, Topology(document.topology), parallelism,
                                document.plan.stage_forms);
    if (const auto* none = std::get_if<NoGroups>(&grouped)) {
      constexpr std::string_view kForms = "/stage_forms";
      if (none->place.starts_with(kForms)) {
        stage_forms.add_all({{none->place.substr(kForms.size()),
                              "expected groups that layers and servers allow, like "
                              "those of the plan, got " +
                                  none->reason}});
        return false;
      }
      field.add(fmt::format("expected groups that layers and servers allow, got {}: {}",
                            to_text(parallelism), none->reason));
      return false;
    }
    document.ungrouped = {std::move(document.profile), std::move(document.topology)};
    document.profile = std::move(std::get<PlanInputs>(grouped).profile);
    document.topology = std::move(std::get<PlanInputs>(grouped).topology);
    return true;
  } catch (const Error& error) {
    field.add_all(error.violations());
    return false;
  }
}

/// Records a violation if not all that a choice by the median leaves in a file is there, or some of
/// it without the rest.
void check_jitter(const Field& field, const PlanDocument& document) {
  const bool is_asked = document.request && document.request->jitter;
  const char* const expected = is_asked ? "expected the key \"{}\", as /request/jitter is there"
                                        : "expected no key \"{}\" without /request/jitter";
  if (document.prediction.jitter.has_value() != is_asked) {
    field.add_all({{"/predicted", fmt::format(fmt::runtime(expected), "jitter")}});
  }
  if (document.search.fastest.has_value() != is_asked) {
    field.add_all({{"/search_space", fmt::format(fmt::runtime(expected), "fastest_ns")}});
  }
}

/// Records what of the plan the mode of its simulation or its runtime does not allow.
void check_mode(const Field& field, const PlanDocument& document) {
  const SimulationMode mode = document.prediction.mode();
  field.add_all(mode_faults(document.plan, mode));
  if (!document.runtime) return;
  const Runtime& runtime = *document.runtime;
  field.add_all(runtime_faults(runtime, document.plan, mode));
  field.add_all(memory_faults(runtime, document.original_profile(), document.original_topology()));
}

/// Records parts of a document that do not go together.
void check_parts(const Field& field, const PlanDocument& document) {
  check_jitter(field, document);
  check_mode(field, document);
}

/// Records a violation if the schedule would be too long to process.
void check_length(const Field& micro_batches, const Plan& plan) {
  std::int64_t devices = 0;
  for (const StagePlan& stage : plan.stages)
    devices += static_cast<std::int64_t>(stage.devices.size());
  if (plan.num_micro_batches > kMaxDevicePasses / std::max<std::int64_t>(1, devices)) {
    micro_batches.refuse(
        fmt::format("at most {} micro-batches on {} devices", kMaxDevicePasses / devices, devices));
  }
}

struct ReadPlan {
  PlanDocument document;
  // The topology of the document.
  std::shared_ptr<const Topology> topology;
  // The digest that the file states, and its JSON pointer.
  std::string digest;
  std::string digest_place;
};

/// Reads the plan's own form of parallelism, for which there is no key if it is none.
Parallelism read_own_parallelism(const Field& field) {
  const std::size_t faults_before = field.violations()->count();
  const Parallelism parallelism = read_parallelism(field);
  if (parallelism.is_none() && field.violations()->count() == faults_before) {
    field.refuse("a degree above 1, or sharding, or no such key");
  }
  return parallelism;
}

SkipTensors read_skip_tensors(const Field& field) {
  const bool is_direct =
      field.present() && read_choice(field, {"forwarded", "direct"}) == std::size_t{1};
  return is_direct ? SkipTensors::Direct : SkipTensors::Forwarded;
}

/// Reads the runtime, if there is one, and checks its hash; files without a hash are older.
std::optional<Runtime> read_own_runtime(ObjectReader& object) {
  const Field hash = object.field("runtime_sha256");
  const Field field = object.field("runtime");
  if (!field.present()) {
    if (hash.present()) hash.add("expected no hash, as the plan has no runtime, got one");
    return std::nullopt;
  }
  const std::size_t faults_before = field.violations()->count();
  Runtime runtime = read_runtime(field);
  if (hash.present() && field.violations()->count() == faults_before) {
    check_hash(hash, hash_of(runtime), "the runtime in its canonical form");
  }
  return runtime;
}

ReadPlan read_plan_document(const Field& field) {
  ObjectReader object(field);
  ReadPlan read;
  PlanDocument& document = read.document;
  if (!check_schema(object, "dapple-plan/1")) return read;
  document.tool = read_name(object.field("tool")).value_or("");
  document.profile = read_model(object.field("model"));
  const Field topology = object.field("topology");
  bool is_sound = read_description(topology, document.topology);
  document.runtime = read_own_runtime(object);
  document.plan.skip_tensors = read_skip_tensors(object.field("skip_tensors"));
  document.profile.skip_tensors = document.plan.skip_tensors;
  document.plan.boundaries = read_boundaries(object.field("boundaries"));
  document.profile.boundaries = document.plan.boundaries;
  const Field parallelism = object.field("parallelism");
  if (parallelism.present()) document.plan.parallelism = read_own_parallelism(parallelism);
  const Field stage_forms = object.field("stage_forms");
  document.plan.stage_forms = read_stage_forms(stage_forms);
  if (parallelism.present() || stage_forms.present()) {
    const bool is_read = is_sound && field.violations()->empty();
    is_sound = is_read && group_document(parallelism.present() ? parallelism : stage_forms,
                                         stage_forms, document);
  }
  const std::string description_place = topology.place();
  const DeviceNames names(document.topology,
                          {nullptr,
                           {.parent = description_place, .key = "description"},
                           topology.ordinal(),
                           topology.violations()},
                          is_sound);
  Plan& plan = document.plan;
  plan.global_batch_size = required_integer(object.field("global_batch_size"), kSampleRange);
  plan.micro_batch_size = required_integer(object.field("micro_batch_size"), kSampleRange);
  const Field micro_batches = object.field("num_micro_batches");
  plan.num_micro_batches = required_integer(micro_batches, kSampleRange);
  plan.gradients = read_gradients(object.field("gradients"));
  ObjectReader schedule(object.field("schedule"));
  const Field digest = read_schedule(schedule, plan);
  read_stages(object.field("stages"), names, document);
  // Without sound groups their sizes may be anything.
  if (is_sound) set_devices_per_replica(plan);
  forget_equal_shares(document.plan);
  plan.tied_gradients = tied_gradients(document.profile, plan.stages);
  read_prediction(object.field("predicted"), names, plan.stages.size(), document.prediction);
  document.baselines = read_baselines(object.field("baselines"));
  // Files of version 0.1.0 do not contain the request, and neither do plans that no planner chose.
  const Field request = object.field("request");
  if (request.present()) document.request = read_request(request);
  document.search = read_search(object.field("search_space"));
  document.schedules = read_schedule_records(object.field("schedules"));
  document.parallelisms = read_parallelism_records(object.field("parallelisms"));
  document.warnings = read_texts(object.field("warnings"));
  object.finish();
  if (field.violations()->empty()) check_parts(field, document);
  read.topology = names.topology();
  read.digest = read_hash(digest).value_or("");
  read.digest_place = digest.place();
  if (field.violations()->empty()) check_length(micro_batches, plan);
  return read;
}

/// Returns what was read, with the check of the digest that is left to do.
UncheckedPlan unchecked(ReadPlan read, const std::string& source_name) {
  UncheckedPlan result{.document = std::move(read.document), .check_digest = {}};
  result.check_digest = [plan = result.document.plan, topology = std::move(read.topology),
                         layers = static_cast<std::int32_t>(result.document.profile.layers.size()),
                         stated = std::move(read.digest), place = std::move(read.digest_place),
                         source_name] {
    // No schedule can be generated from an invalid plan. Reporting that is left to the caller.
    if (!validate(plan, layers, *topology).empty()) return;
    const std::string digest = schedule_digest(plan, *topology);
    if (digest == stated) return;
    Violation fault{place, wrong_hash("the schedule that the plan generates", digest, stated)};
    throw Error{ErrorKind::BadInput, source_name, {std::move(fault)}};
  };
  return result;
}

}  // namespace

UncheckedPlan read_unchecked_plan(const Field& field) {
  return unchecked(read_plan_document(field), field.violations()->source_name());
}

UncheckedPlan read_unchecked_plan(std::string_view text, const std::string& source_name) {
  return unchecked(read_document<ReadPlan>(text, source_name, read_plan_document), source_name);
}

PlanDocument read_plan(std::string_view text, const std::string& source_name) {
  UncheckedPlan plan = read_unchecked_plan(text, source_name);
  plan.check_digest();
  return std::move(plan.document);
}

std::string document_kind(std::string_view text) {
  constexpr std::string_view kOurs = "dapple-";
  const std::string schema = find_schema(text);
  if (schema.compare(0, kOurs.size(), kOurs) != 0) return "";
  return schema.substr(kOurs.size(), schema.find('/') - kOurs.size());
}

}  // namespace dapple::io
