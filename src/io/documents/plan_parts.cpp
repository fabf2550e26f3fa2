#include "io/documents/plan_parts.h"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "dapple/plan/request.h"
#include "dapple/profile/limits.h"
#include "io/documents/layers_json.h"

namespace dapple::io {
namespace {

void write_nullable(JsonWriter& writer, const std::optional<double>& value) {
  if (value) {
    writer.number(*value);
  } else {
    writer.null();
  }
}

}  // namespace

void write_gradients(JsonWriter& writer, const GradientSynchronization& gradients) {
  writer.open_object(JsonWriter::Layout::Line);
  writer.key("bucket_bytes").integer(gradients.bucket_size.count);
  writer.key("optimizer_step").text(to_string(gradients.optimizer));
  if (!gradients.overlaps) writer.key("overlap").text("none");
  writer.close();
}

void write_parallelism(JsonWriter& writer, const Parallelism& parallelism) {
  writer.open_object(JsonWriter::Layout::Line);
  writer.key("tensor").integer(parallelism.tensor);
  if (parallelism.sequence) writer.key("sequence").boolean(true);
  if (parallelism.context > 1) writer.key("context").integer(parallelism.context);
  if (parallelism.group_replicas > 1) writer.key("data").integer(parallelism.group_replicas);
  if (parallelism.experts > 1) {
    writer.key("experts").integer(parallelism.experts);
    writer.key("expert_tensor").integer(parallelism.expert_tensor);
  }
  if (parallelism.shards_optimizer) {
    writer.key("sharding").text(to_string(Sharding::Optimizer));
    if (parallelism.optimizer_shards > 0) {
      writer.key("shards").integer(parallelism.optimizer_shards);
    }
  }
  if (parallelism.full_shards > 1) {
    writer.key("sharding").text(to_string(Sharding::Full));
    writer.key("shards").integer(parallelism.full_shards);
  }
  write_recomputed_parts(writer, parallelism.recomputes);
  write_recomputed_layers(writer, parallelism.recomputed_layers);
  writer.close();
}

Parallelism read_parallelism(const Field& field) {
  ObjectReader object(field);
  Parallelism parallelism;
  parallelism.tensor = required_integer(object.field("tensor"), {1, kMaxTensorParallel});
  const Field sequence = object.field("sequence");
  if (sequence.present()) parallelism.sequence = read_boolean(sequence).value_or(false);
  parallelism.context = optional_integer(object.field("context"), {1, kMaxContextParallel}, 1);
  parallelism.group_replicas = optional_integer(object.field("data"), {1, kMaxGroup}, 1);
  parallelism.experts = optional_integer(object.field("experts"), {1, kMaxGroup}, 1);
  const Field expert_tensor = object.field("expert_tensor");
  if (parallelism.experts > 1) {
    parallelism.expert_tensor = required_integer(expert_tensor, {1, kMaxTensorParallel});
  } else if (expert_tensor.present()) {
    expert_tensor.refuse("no such key, as there is no expert parallelism");
  }
  const Field shards = object.field("shards");
  if (const Field sharding = object.field("sharding"); sharding.present()) {
    const auto choice =
        read_choice(sharding, {to_string(Sharding::Optimizer), to_string(Sharding::Full)});
    parallelism.shards_optimizer = choice == 0U;
    if (choice == 1U) parallelism.full_shards = required_integer(shards, {2, kMaxGroup});
    if (choice == 0U && shards.present()) {
      parallelism.optimizer_shards = required_integer(shards, {2, kMaxGroup});
    }
  } else if (shards.present()) {
    shards.refuse("no such key, as no state is sharded");
  }
  parallelism.recomputes = read_recomputed_parts(object.field("recompute"));
  parallelism.recomputed_layers = read_recomputed_layers(object, parallelism.recomputes);
  object.finish();
  if (parallelism.sequence && parallelism.tensor == 1) {
    sequence.refuse("false, as there is no tensor parallelism");
  } else if (parallelism.group_size() > kMaxGroup || !parallelism.is_sound()) {
    field.add(std::string("expected ") + kSoundDegrees + ", got " + short_text(parallelism));
  }
  return parallelism;
}

void write_stage_forms(JsonWriter& writer, const std::vector<Parallelism>& forms) {
  if (forms.empty()) return;
  writer.key("stage_forms").open_array(JsonWriter::Layout::Lines);
  for (const Parallelism& form : forms) write_parallelism(writer, form);
  writer.close();
}

std::vector<Parallelism> read_stage_forms(const Field& field) {
  std::vector<Parallelism> forms;
  if (!field.present()) return forms;
  constexpr const char* kExpected = "one or more forms of parallelism, or no such key";
  const ArrayReader array(field, kExpected);
  if (array.valid() && array.size() == 0) field.refuse(kExpected);
  for (std::size_t i = 0; i < array.size(); ++i) forms.push_back(read_parallelism(array.at(i)));
  return forms;
}

void write_samples(JsonWriter& writer, const StagePlan& stage) {
  if (stage.samples.empty()) return;
  writer.key("samples").open_array(JsonWriter::Layout::Line);
  for (const std::int64_t share : stage.samples) writer.integer(share);
  writer.close();
}

std::vector<std::int64_t> read_samples(const Field& field) {
  const ArrayReader array(field, "an array with the samples of each replica");
  std::vector<std::int64_t> samples;
  for (std::size_t i = 0; i < array.size(); ++i) {
    samples.push_back(required_integer(array.at(i), {1, kMaxCount}));
  }
  if (array.valid() && samples.empty()) field.refuse("the samples of each replica");
  return samples;
}

void write_time_parts(JsonWriter& writer, const TimeParts& parts) {
  writer.open_object(JsonWriter::Layout::Line);
  for (const TimePart& part : kTimeParts) {
    const Duration time = parts.*part.part;
    if (part.is_optional && time == Duration{}) continue;
    writer.key(part.key).integer(time.ns);
  }
  writer.close();
}

namespace {

void write_jitter_figures(JsonWriter& writer, const JitterFigures& jitter) {
  writer.open_object(JsonWriter::Layout::Line);
  writer.key("median_ns").integer(jitter.median.ns);
  writer.key("percentile_95_ns").integer(jitter.ninety_fifth.ns);
  writer.key("draws").integer(jitter.draws);
  writer.key("slow_device_ns").open_array(JsonWriter::Layout::Line);
  for (const Duration time : jitter.with_slow_device) writer.integer(time.ns);
  writer.close();
  writer.key("worst_stage").integer(jitter.worst_stage().value);
  writer.close();
}

}  // namespace

void write_contention(JsonWriter& writer, Contention contention) {
  writer.key("contention").text(to_string(contention));
  // Otherwise it is not written, so that files remain as they were.
  if (contention == Contention::SharedWithCollectives) writer.key("collectives").text("shared");
}

Contention read_contention(ObjectReader& object, bool is_required) {
  const Field contention = object.field("contention");
  const Field collectives = object.field("collectives");
  const bool is_off =
      (is_required || contention.present()) && read_choice(contention, {"on", "off"}) == 1U;
  if (!collectives.present() || read_choice(collectives, {"shared"}) != 0U) {
    return is_off ? Contention::Off : Contention::Shared;
  }
  if (is_off) collectives.add("expected none where contention is off, got \"shared\"");
  return Contention::SharedWithCollectives;
}

void write_prediction(JsonWriter& writer, const Prediction& prediction, const Topology& topology) {
  writer.open_object(JsonWriter::Layout::Lines);
  write_contention(writer, prediction.contention);
  // The default is not written, so that files remain as they were before independent replicas
  // existed.
  if (prediction.replicas != Replicas::Together) {
    writer.key("replicas").text(to_string(prediction.replicas));
  }
  if (prediction.transfers != Transfers::Overlapped) {
    writer.key("transfers").text(to_string(prediction.transfers));
  }
  writer.key("iteration_ns").integer(prediction.iteration.ns);
  writer.key("samples_per_second").number(prediction.samples_per_second);
  write_nullable(writer.key("speedup_over_one_device"), prediction.speedup_over_one_device);
  writer.key("lower_bound_ns");
  if (prediction.lower_bound) {
    writer.integer(prediction.lower_bound->ns);
  } else {
    writer.null();
  }
  write_nullable(writer.key("optimality_gap"), prediction.optimality_gap);
  writer.key("bubble_fraction").number(prediction.bubble_fraction);
  writer.key("exposed_transfer_ns").integer(prediction.exposed_transfer.ns);
  writer.key("exposed_all_reduce_ns").integer(prediction.exposed_all_reduce.ns);
  write_time_parts(writer.key("time_parts"), prediction.parts);
  writer.key("devices").open_array(JsonWriter::Layout::Lines);
  for (const DeviceFigures& figures : prediction.devices) {
    writer.open_object(JsonWriter::Layout::Line);
    writer.key("device").text(topology.device(figures.device).name);
    writer.key("peak_memory_bytes").integer(figures.peak_memory.count);
    writer.key("memory_limit_bytes").integer(figures.memory_limit.count);
    writer.key("busy_fraction").number(figures.busy_fraction);
    writer.close();
  }
  writer.close();
  if (prediction.jitter) write_jitter_figures(writer.key("jitter"), *prediction.jitter);
  writer.close();
}

bool is_of_plan(const Field& field, const std::string& plan_sha256) {
  constexpr std::size_t kShown = 12;
  const std::optional<std::string> hash = read_hash(field);
  if (!hash || *hash == plan_sha256) return true;
  field.add(fmt::format("expected {}..., the hash of the plan, got {}..., that of another one",
                        plan_sha256.substr(0, kShown), hash->substr(0, kShown)));
  return false;
}

}  // namespace dapple::io
