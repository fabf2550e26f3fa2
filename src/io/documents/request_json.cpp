#include "io/documents/request_json.h"

#include <array>
#include <cstddef>
#include <cstdint>

#include "dapple/io/json/json_reader.h"
#include "dapple/profile/limits.h"
#include "io/documents/layers_json.h"
#include "io/documents/plan_parts.h"
#include "io/json/number_text.h"
#include "io/runtime/runtime_json.h"

namespace dapple::io {
namespace {

using Layout = JsonWriter::Layout;

constexpr IntegerRange kCountRange{1, kMaxCount};
constexpr IntegerRange kPinnedCountRange{1, 100'000};
constexpr IntegerRange kPinnedLayerRange{1, 100'000};
constexpr FactorRange kGapRange{Factor{0}, kOne};
constexpr std::string_view kEveryFamily = "auto";
constexpr std::array<std::string_view, 3> kEnds{"", "time-limit", "signal"};

template <class Value, class Write>
void write_nullable(JsonWriter& writer, const std::optional<Value>& value, Write write) {
  if (value) {
    write(*value);
  } else {
    writer.null();
  }
}

void write_layers(JsonWriter& writer, const std::vector<std::int32_t>& layers) {
  writer.open_array(Layout::Line);
  for (const std::int32_t layer : layers) writer.integer(layer);
  writer.close();
}

void write_pins(JsonWriter& writer, const Pins& pins) {
  const auto integer = [&](std::int32_t count) { writer.integer(count); };
  writer.open_object(Layout::Line);
  write_nullable(writer.key("stages"), pins.stages, integer);
  write_nullable(writer.key("replicas"), pins.replicas, integer);
  write_nullable(writer.key("recompute"), pins.recompute,
                 [&](bool recompute) { writer.boolean(recompute); });
  // Written only where it is pinned, so that files remain as they were before.
  if (pins.tensor) writer.key("tensor").integer(*pins.tensor);
  if (pins.context) writer.key("context").integer(*pins.context);
  if (pins.experts) writer.key("experts").integer(*pins.experts);
  if (pins.expert_tensor) writer.key("expert_tensor").integer(*pins.expert_tensor);
  if (pins.shards) writer.key("shards").integer(*pins.shards);
  if (pins.recomputation) {
    const std::string parts = to_text(pins.recomputation->parts);
    writer.key("recomputed_parts").text(parts.empty() ? "none" : parts);
    write_recomputed_layers(writer, pins.recomputation->layers);
  }
  writer.key("least_depths").boolean(pins.least_depths);
  write_layers(writer.key("cuts"), pins.cuts);
  write_layers(writer.key("joints"), pins.joints);
  writer.close();
}

/// Reads layer numbers, which must be in ascending order.
std::vector<std::int32_t> read_layers(const Field& field) {
  const ArrayReader array(field, "an array of layer numbers");
  std::vector<std::int32_t> layers;
  for (std::size_t i = 0; i < array.size(); ++i) {
    const auto layer = static_cast<std::int32_t>(required_integer(array.at(i), kPinnedLayerRange));
    if (!layers.empty() && layer <= layers.back()) {
      array.at(i).refuse("layer numbers in ascending order, each once");
    }
    layers.push_back(layer);
  }
  return layers;
}

Pins read_pins(const Field& field) {
  const auto read_count = [](const Field& count) -> std::optional<std::int32_t> {
    return static_cast<std::int32_t>(required_integer(count, kPinnedCountRange));
  };
  ObjectReader object(field);
  Pins pins;
  pins.stages = read_nullable<std::int32_t>(object.field("stages"), read_count);
  pins.replicas = read_nullable<std::int32_t>(object.field("replicas"), read_count);
  pins.recompute = read_nullable<bool>(object.field("recompute"), read_boolean);
  if (const Field tensor = object.field("tensor"); tensor.present())
    pins.tensor = read_integer(tensor, {1, kMaxTensorParallel});
  if (const Field context = object.field("context"); context.present())
    pins.context = read_integer(context, {1, kMaxContextParallel});
  if (const Field experts = object.field("experts"); experts.present())
    pins.experts = read_integer(experts, {1, kMaxGroup});
  if (const Field sharing = object.field("expert_tensor"); sharing.present())
    pins.expert_tensor = read_integer(sharing, {1, kMaxTensorParallel});
  if (const Field shards = object.field("shards"); shards.present())
    pins.shards = read_integer(shards, {1, kMaxGroup});
  if (const Field parts = object.field("recomputed_parts"); parts.present()) {
    const bool is_none =
        parts.value().kind == JsonValue::Kind::Text && parts.value().text == "none";
    pins.recomputation.emplace();
    if (!is_none) pins.recomputation->parts = read_recomputed_parts(parts);
    pins.recomputation->layers = read_recomputed_layers(object, pins.recomputation->parts);
  } else {
    for (const char* const key : {"recomputed_layers", "recompute_every"}) {
      const Field layers = object.field(key);
      if (layers.present()) layers.refuse("no such key, as no parts are pinned");
    }
  }
  pins.least_depths = read_boolean(object.field("least_depths")).value_or(false);
  pins.cuts = read_layers(object.field("cuts"));
  pins.joints = read_layers(object.field("joints"));
  object.finish();
  return pins;
}

/// Reads the requested schedule family, or nothing if every family was requested.
std::optional<ScheduleFamily> read_asked_family(const Field& field) {
  std::vector<std::string_view> names{kEveryFamily};
  std::vector<ScheduleFamily> families;
  for (const ScheduleFamily family : kScheduleFamilies) {
    if (family == ScheduleFamily::Given) continue;
    names.push_back(to_string(family));
    families.push_back(family);
  }
  const std::size_t choice = read_choice(field, names).value_or(0);
  if (choice == 0) return std::nullopt;
  return families[choice - 1];
}

/// Reads which choices are left to the search: none without their keys.
void read_free_choices(ObjectReader& object, PlanRequest& request) {
  const auto is_auto = [&](const char* key, std::string_view otherwise) {
    const Field field = object.field(key);
    return field.present() && read_choice(field, {otherwise, "auto"}) == 1U;
  };
  if (is_auto("shares", to_string(Shares::Equal))) request.shares = Shares::Any;
  if (is_auto("replication", to_string(Replications::Split))) {
    request.replications = Replications::Any;
  }
  if (is_auto("recomputed_layers", to_string(RecomputedLayers::All))) {
    request.recomputed_layers = RecomputedLayers::Any;
  }
}

/// Reads whether stages may have different forms of parallelism. Requires: the family of the
/// request was read.
bool read_per_stage(const Field& field, const PlanRequest& request) {
  const bool may_differ = field.present() && read_boolean(field).value_or(false);
  const bool is_1f1b = request.family && is_planned_as_1f1b(*request.family);
  if (may_differ && !is_1f1b) {
    field.refuse("no such key with a schedule other than 1f1b and gpipe");
  }
  return may_differ;
}

/// Reads whether groups may have different sizes. Requires: all else of the request was read.
bool read_group_sizes(const Field& field, const PlanRequest& request) {
  if (!field.present()) return false;
  const bool may_differ = read_choice(field, {"same", "any"}) == 1U;
  const bool is_possible = request.mixes_forms && request.planner == PlannerKind::Exact &&
                           request.mode.replicas == Replicas::Together &&
                           request.replications == Replications::Split;
  if (may_differ && !is_possible) {
    field.refuse(
        "\"same\" but for per_stage with the exact planner, replicas together and split "
        "micro-batches");
  }
  return may_differ;
}

void write_jitter_request(JsonWriter& writer, const JitterRequest& jitter) {
  writer.open_object(Layout::Line);
  writer.key("deviation").raw(factor_text(jitter.deviation));
  writer.key("seed").integer(static_cast<std::int64_t>(jitter.seed));
  writer.close();
}

/// Reads how far speeds vary; nothing where the key is missing.
std::optional<JitterRequest> read_jitter_request(const Field& field) {
  if (!field.present()) return std::nullopt;
  ObjectReader object(field);
  JitterRequest jitter;
  const Field deviation = object.field("deviation");
  jitter.deviation = read_factor(deviation, kGapRange).value_or(Factor{});
  if (jitter.deviation >= kOne) deviation.refuse("a number below 1");
  jitter.seed = static_cast<std::uint64_t>(required_integer(object.field("seed"), kCountRange));
  object.finish();
  return jitter;
}

}  // namespace

void write_request(JsonWriter& writer, const PlanRequest& request) {
  const auto integer = [&](std::int64_t count) { writer.integer(count); };
  writer.open_object(Layout::Lines);
  writer.key("planner").text(to_string(request.planner));
  writer.key("schedule").text(request.family ? to_string(*request.family) : kEveryFamily);
  write_nullable(writer.key("micro_batch_size"), request.micro_batch_size, integer);
  write_nullable(writer.key("bucket_bytes"), request.bucket_size,
                 [&](Bytes size) { writer.integer(size.count); });
  writer.key("optimizer_step").text(to_string(request.optimizer));
  if (!request.overlaps_gradients) writer.key("gradient_overlap").text("none");
  write_contention(writer, request.mode.contention);
  writer.key("replicas").text(to_string(request.mode.replicas));
  if (request.mode.blocks()) writer.key("transfers").text(to_string(request.mode.transfers));
  writer.key("unlimited_memory").boolean(request.ignore_memory);
  writer.key("memory_limit_bytes").integer(request.memory_limit.count);
  writer.key("target_gap").raw(factor_text(request.target_gap));
  write_pins(writer.key("pins"), request.pins);
  if (request.sharding != Sharding::None) {
    writer.key("sharding").text(to_string(request.sharding));
  }
  if (request.max_tensor) writer.key("max_tensor").integer(*request.max_tensor);
  if (request.shares != Shares::Equal) writer.key("shares").text(to_string(request.shares));
  if (request.replications != Replications::Split) {
    writer.key("replication").text(to_string(request.replications));
  }
  if (request.recomputed_layers != RecomputedLayers::All) {
    writer.key("recomputed_layers").text(to_string(request.recomputed_layers));
  }
  if (request.mixes_forms) writer.key("per_stage").boolean(true);
  if (request.mixes_group_sizes) writer.key("group_sizes").text("any");
  writer.key("for");
  if (request.target.empty()) {
    writer.null();
  } else {
    writer.text(request.target);
  }
  writer.key("baselines").boolean(request.baselines);
  writer.key("stopped_by");
  if (request.stopped_by == StopReason::None) {
    writer.null();
  } else {
    writer.text(kEnds.at(static_cast<std::size_t>(request.stopped_by)));
  }
  write_nullable(writer.key("time_limit_ns"), request.time_limit,
                 [&](Duration limit) { writer.integer(limit.ns); });
  writer.key("input_warnings").texts(request.input_warnings);
  if (request.jitter) write_jitter_request(writer.key("jitter"), *request.jitter);
  writer.close();
}

PlanRequest read_request(const Field& field) {
  const auto read_count = [](const Field& count) { return read_integer(count, kCountRange); };
  ObjectReader object(field);
  PlanRequest request;
  const bool is_dapple = read_choice(object.field("planner"), {"exact", "dapple"}) == 1U;
  request.planner = is_dapple ? PlannerKind::Dapple : PlannerKind::Exact;
  request.family = read_asked_family(object.field("schedule"));
  request.micro_batch_size =
      read_nullable<std::int64_t>(object.field("micro_batch_size"), read_count);
  request.bucket_size = read_nullable<Bytes>(object.field("bucket_bytes"), [](const Field& size) {
    return std::optional(Bytes{required_integer(size, kCountRange)});
  });
  const bool is_per_bucket =
      read_choice(object.field("optimizer_step"), {"at-end", "per-bucket"}) == 1U;
  request.optimizer = is_per_bucket ? OptimizerTiming::PerBucket : OptimizerTiming::AtEnd;
  if (const Field overlap = object.field("gradient_overlap"); overlap.present()) {
    request.overlaps_gradients = read_gradient_overlap(overlap);
  }
  request.mode.contention = read_contention(object, /*is_required=*/true);
  const bool are_independent =
      read_choice(object.field("replicas"), {"together", "independent"}) == 1U;
  request.mode.replicas = are_independent ? Replicas::Independent : Replicas::Together;
  if (const Field transfers = object.field("transfers"); transfers.present()) {
    request.mode.transfers = read_transfers(transfers);
  }
  request.ignore_memory = read_boolean(object.field("unlimited_memory")).value_or(false);
  const Field memory_limit = object.field("memory_limit_bytes");
  request.memory_limit.count = required_integer(memory_limit, kCountRange);
  request.target_gap = read_factor(object.field("target_gap"), kGapRange).value_or(Factor{});
  request.pins = read_pins(object.field("pins"));
  if (const Field most = object.field("max_tensor"); most.present())
    request.max_tensor = read_integer(most, {1, kMaxTensorParallel});
  if (const Field sharding = object.field("sharding"); sharding.present()) {
    constexpr Sharding kShardings[] = {Sharding::Optimizer, Sharding::Full, Sharding::Any};
    request.sharding = kShardings[read_choice(sharding, {"optimizer", "full", "auto"}).value_or(0)];
  }
  read_free_choices(object, request);
  request.target = read_nullable<std::string>(object.field("for"), read_name).value_or("");
  request.mixes_forms = read_per_stage(object.field("per_stage"), request);
  request.mixes_group_sizes = read_group_sizes(object.field("group_sizes"), request);
  request.baselines = read_boolean(object.field("baselines")).value_or(true);
  const Field stopped_by = object.field("stopped_by");
  if (stopped_by.value_of_kind(JsonValue::Kind::Null) == nullptr) {
    const std::size_t reason = read_choice(stopped_by, {kEnds[1], kEnds[2]}).value_or(0);
    request.stopped_by = reason == 0 ? StopReason::TimeLimit : StopReason::Signal;
  }
  const Field time_limit = object.field("time_limit_ns");
  request.time_limit = read_nullable<Duration>(time_limit, [](const Field& limit) {
    return std::optional(Duration{required_integer(limit, kCountRange)});
  });
  if (request.time_limit.has_value() != (request.stopped_by == StopReason::TimeLimit)) {
    time_limit.refuse("the limit that stopped the search, or null where none did");
  }
  request.input_warnings = read_texts(object.field("input_warnings"));
  request.jitter = read_jitter_request(object.field("jitter"));
  object.finish();
  return request;
}

}  // namespace dapple::io
