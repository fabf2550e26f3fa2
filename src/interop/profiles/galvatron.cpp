#include "interop/profiles/galvatron.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/profile/limits.h"
#include "interop/profiles/profile_options.h"
#include "interop/text/foreign_json.h"
#include "interop/text/foreign_text.h"

namespace dapple::interop {
namespace {

using io::Field;
using io::JsonValue;
using io::ObjectReader;

constexpr ProfileNeeds kNeeds{.file = "a Galvatron profile",
                              .tensor_parallel = Need::Useless,
                              .backward_ratio = Need::Required,
                              .output = Need::Required,
                              .layers = Need::Optional,
                              .time_unit = Need::Optional};
// Stands for the kind of everything outside the layers, that is, embedding and head.
constexpr std::int32_t kOther = -1;
constexpr std::int32_t kMostKinds = 100;
// Model states per parameter: weight, gradient and the two moments of Adam.
constexpr std::int64_t kStatesPerParameter = 4;
constexpr std::string_view kPrefix = "layertype_";
constexpr std::string_view kFirstMemory = "other_memory_pp_on_first";
constexpr std::string_view kLastMemory = "other_memory_pp_on_last";

/// The parts of a key such as "layertype_0_bsz8_seq4096".
struct TimeKey {
  std::int32_t kind = kOther;
  std::int64_t batch = 1;
  // The digits of the sequence length; empty if the key has none.
  std::string sequence;
};

/// Parses a key; returns nothing for keys of another form, such as the raw times of
/// "layernum[2]_..." and those of parts of a layer, "..._mlp".
std::optional<TimeKey> parse_time_key(std::string_view key) {
  if (!begins_with(key, kPrefix)) return std::nullopt;
  const std::vector<std::string_view> parts = split(key.substr(kPrefix.size()), "_");
  if (parts.size() < 2 || parts.size() > 3 || !begins_with(parts[1], "bsz")) return std::nullopt;
  TimeKey result;
  if (parts[0] != "other") {
    const auto kind = parse_count(parts[0]);
    if (!kind || *kind >= kMostKinds) return std::nullopt;
    result.kind = *kind;
  }
  const auto batch = parse_count(parts[1].substr(3));
  if (!batch || *batch < 1) return std::nullopt;
  result.batch = *batch;
  if (parts.size() == 3) {
    if (!begins_with(parts[2], "seq") || !parse_count(parts[2].substr(3))) return std::nullopt;
    result.sequence = parts[2].substr(3);
  }
  return result;
}

/// The time of one sample's forward by batch size.
using Times = std::map<std::int64_t, Duration>;

struct Computation {
  std::map<std::int32_t, Times> times;  // by kind of layer
  std::set<std::string> sequences;
};

struct LayerMemory {
  Bytes parameters;
  // The activation memory of one sample.
  Bytes activation;
};

struct Memory {
  std::vector<LayerMemory> kinds;
  LayerMemory embedding;
  LayerMemory head;
  // The number of layers of the model, if the file states it.
  std::optional<std::int64_t> layers;
  bool is_sequence_parallel = false;
};

Computation read_computation(const Field& field, const TimeUnit& unit) {
  Computation result;
  ObjectReader object(field);
  if (!object.valid()) return result;
  const std::vector<Field> members = object.members();
  for (std::size_t i = 0; i < members.size(); ++i) {
    const std::optional<TimeKey> key = parse_time_key(field.value().keys[i]);
    if (!key) continue;
    const auto time = read_scaled(members[i], unit.nanoseconds, unit.name);
    if (!time) continue;
    if (Wide{*time} * key->batch > Wide{kMaxCount}) {
      members[i].add("expected at most 10^15 ns for a whole batch, got more");
      continue;
    }
    result.sequences.insert(key->sequence);
    const bool is_new = result.times[key->kind].emplace(key->batch, Duration{*time}).second;
    if (!is_new && result.sequences.size() == 1) {
      members[i].add("expected each batch size once, got it again");
    }
  }
  if (result.sequences.size() > 1) {
    field.add(fmt::format("expected times of one sequence length, got those of {}",
                          fmt::join(result.sequences, ", ")));
  }
  if (result.times.count(0) == 0) {
    field.add("expected times of layers, as \"layertype_0_bsz8_seq4096\", got none");
  }
  for (const auto& [kind, times] : result.times) {
    const bool has_all = kind == kOther || kind == 0 || result.times.count(kind - 1) > 0;
    if (!has_all) field.add(fmt::format("expected times of layertype_{}, got none", kind - 1));
    if (kind != 0 && result.times.count(0) > 0 &&
        !std::equal(times.begin(), times.end(), result.times[0].begin(), result.times[0].end(),
                    [](const auto& a, const auto& b) { return a.first == b.first; })) {
      field.add("expected the same batch sizes for every kind of layer, got others");
    }
  }
  return result;
}

class MemoryReader {
 public:
  MemoryReader(std::string sequence, std::size_t kinds)
      : sequence_(std::move(sequence)), kinds_(kinds) {}
  Memory read(const Field& field);

 private:
  template <class Read>
  void at_sequence(const Field& field, std::string_view told_by, const Read& read) const;
  LayerMemory read_kind(const Field& field) const;
  LayerMemory read_end(const Field& field) const;

  std::string sequence_;
  std::size_t kinds_;
};

/// Calls `read` with the object that holds the figures: the field itself in older files, which are
/// recognized by the key `told_by`, and its member for the sequence length in newer ones.
template <class Read>
void MemoryReader::at_sequence(const Field& field, std::string_view told_by,
                               const Read& read) const {
  ObjectReader object(field);
  if (!object.valid()) return;
  if (object.field(told_by).present()) return read(object);
  const Field wanted = object.field(sequence_);
  if (!wanted.present()) {
    field.add(fmt::format("expected figures of sequence length {}, which the times have, got none",
                          sequence_.empty() ? "(none)" : sequence_));
    return;
  }
  ObjectReader figures(wanted);
  if (figures.valid()) read(figures);
}

LayerMemory MemoryReader::read_kind(const Field& field) const {
  LayerMemory memory;
  at_sequence(field, "parameter_size", [&](ObjectReader& object) {
    memory.parameters = {
        read_scaled(object.field("parameter_size"), kMebibyte, "mebibytes").value_or(0)};
    ObjectReader degrees(object.field("tp_activation_per_bsz_dict"));
    if (!degrees.valid()) return;
    memory.activation = {read_scaled(degrees.field("1"), kMebibyte, "mebibytes").value_or(0)};
  });
  return memory;
}

/// Reads the memory of the embedding or the head, which the first or last stage of a pipeline has
/// besides its layers.
LayerMemory MemoryReader::read_end(const Field& field) const {
  LayerMemory memory;
  at_sequence(field, "model_states", [&](ObjectReader& object) {
    ObjectReader states(object.field("model_states"));
    ObjectReader activation(object.field("activation"));
    if (!states.valid() || !activation.valid()) return;
    const auto bytes = read_scaled(states.field("1"), kMebibyte, "mebibytes");
    memory.parameters = {bytes.value_or(0) / kStatesPerParameter};
    memory.activation = {read_scaled(activation.field("1"), kMebibyte, "mebibytes").value_or(0)};
  });
  return memory;
}

Memory MemoryReader::read(const Field& field) {
  Memory memory;
  ObjectReader object(field);
  if (!object.valid()) return memory;
  memory.is_sequence_parallel = !object.field("layertype_0").present();
  const std::string suffix = memory.is_sequence_parallel ? "_sp" : "";
  std::vector<std::string> keys;
  for (std::size_t kind = 0; kind < kinds_; ++kind) {
    keys.push_back(fmt::format("layertype_{}{}", kind, suffix));
  }
  const std::string first = std::string(kFirstMemory) + suffix;
  const std::string last = std::string(kLastMemory) + suffix;
  for (const std::string& key : keys) memory.kinds.push_back(read_kind(object.field(key)));
  memory.embedding = read_end(object.field(first));
  memory.head = read_end(object.field(last));
  if (const Field config = object.field("model_config"); config.present()) {
    ObjectReader model(config);
    const Field layers = model.field("n_layers");
    if (layers.present()) memory.layers = io::read_integer(layers, {1, kMaxLayers});
  }
  return memory;
}

class GalvatronImporter {
 public:
  GalvatronImporter(const ForeignModelFile& computation, const ForeignModelFile& memory,
                    const ForeignProfileOptions& options)
      : options_(options), computation_file_(computation), memory_file_(memory) {}
  ImportedProfile run();

 private:
  std::int64_t layers_of_a_kind() const;
  void add_layer(std::string name, std::string_view called, const LayerMemory& memory,
                 const Times& times, std::int64_t divisor);
  void add_warnings();

  const ForeignProfileOptions& options_;
  const ForeignModelFile& computation_file_;
  const ForeignModelFile& memory_file_;
  Computation computation_;
  Memory memory_;
  ImportedProfile result_;
};

std::int64_t GalvatronImporter::layers_of_a_kind() const {
  if (options_.layers) return *options_.layers;
  if (memory_.layers && memory_.kinds.size() == 1) return *memory_.layers;
  throw Error{ErrorKind::Usage,
              memory_file_.name,
              {{"--layers",
                "the number of layers of each kind is required, as a Galvatron profile does not "
                "state it"}}};
}

void GalvatronImporter::add_layer(std::string name, std::string_view called,
                                  const LayerMemory& memory, const Times& times,
                                  std::int64_t divisor) {
  Layer layer;
  layer.name = std::move(name);
  layer.parameters = memory.parameters;
  std::vector<Layer>& layers = result_.profile.layers;
  if (!layers.empty()) layer.inputs.push_back(index_at<LayerIndex>(layers.size() - 1));
  const Wide ratio = options_.backward_ratio->billionths;
  for (const auto& [batch, time] : times) {
    const Wide forward = Wide{batch} * time.ns / divisor;
    const Wide backward = (forward * ratio + kOne.billionths - 1) / kOne.billionths;
    const Wide size = Wide{batch} * std::max(memory.activation, *options_.output).count;
    if (backward > Wide{kMaxCount} || size > Wide{kMaxCount}) {
      throw Error{ErrorKind::BadInput,
                  computation_file_.name,
                  {{"", fmt::format("expected at most 10^15 ns and bytes of {} at batch size {}, "
                                    "got more",
                                    layer.name, batch)}}};
    }
    Measurement measurement;
    measurement.batch_size = batch;
    measurement.forward = {static_cast<std::int64_t>(forward)};
    measurement.backward = {static_cast<std::int64_t>(backward)};
    measurement.output = batch * *options_.output;
    measurement.stash = batch * memory.activation;
    layer.measurements.push_back(measurement);
  }
  warn_of_parameters(layer, called, result_.warnings);
  layers.push_back(std::move(layer));
}

void GalvatronImporter::add_warnings() {
  std::vector<std::string>& warnings = result_.warnings;
  if (computation_.times.count(kOther) > 0) {
    warnings.emplace_back(
        "the time of what is no layer (layertype_other) is half the embedding's and half the "
        "head's, as in Galvatron's own cost model");
  } else {
    warnings.emplace_back(
        "the file has no time of what is no layer (layertype_other): embedding and head count as "
        "no time");
  }
  if (memory_.is_sequence_parallel) {
    warnings.emplace_back("memory is that measured with sequence parallelism, the only one told");
  }
  if (computation_.times[0].size() == 1) {
    warn_of_scaling(options_, computation_.times[0].begin()->first, warnings);
  }
}

ImportedProfile GalvatronImporter::run() {
  check_options(options_, kNeeds, computation_file_.name);
  const TimeUnit unit = unit_of_times(options_, "ms");
  computation_ = io::read_document<Computation>(
      computation_file_.text, computation_file_.name,
      [&unit](const Field& field) { return read_computation(field, unit); });
  const std::size_t kinds = computation_.times.size() - computation_.times.count(kOther);
  MemoryReader reader(*computation_.sequences.begin(), kinds);
  memory_ = io::read_document<Memory>(memory_file_.text, memory_file_.name,
                                      [&](const Field& field) { return reader.read(field); });
  const std::int64_t count = layers_of_a_kind();
  if (count > kMaxLayers / static_cast<std::int64_t>(kinds)) {
    throw Error{ErrorKind::Usage,
                memory_file_.name,
                {{"--layers",
                  fmt::format("expected at most {} layers of all kinds, got more", kMaxLayers)}}};
  }
  result_.profile = profile_header(options_, model_name(computation_file_.name),
                                   "imported from a Galvatron profile");
  result_.profile.notes.push_back(fmt::format(
      "A backward takes {} times its forward; a layer puts out {} bytes a sample; what is kept is "
      "the measured activation memory at tensor-parallel degree 1.",
      show_factor(*options_.backward_ratio), options_.output->count));
  Times ends = computation_.times[0];
  for (auto& [batch, time] : ends) {
    time = computation_.times.count(kOther) > 0 ? computation_.times[kOther][batch] : Duration{};
  }
  add_layer("embedding", kFirstMemory, memory_.embedding, ends, 2);
  for (std::size_t kind = 0; kind < kinds; ++kind) {
    const std::string called = fmt::format("{}{}", kPrefix, kind);
    const std::string name = kinds == 1 ? "layer" : called;
    for (std::int64_t l = 0; l < count; ++l) {
      add_layer(fmt::format("{}.{}", name, l), called, memory_.kinds[kind],
                computation_.times[static_cast<std::int32_t>(kind)], 1);
    }
  }
  add_layer("head", kLastMemory, memory_.head, ends, 2);
  add_warnings();
  return std::move(result_);
}

template <class Holds>
bool some_member(const JsonValue& object, const Holds& holds) {
  for (std::size_t i = 0; i < object.keys.size(); ++i) {
    if (holds(object.keys[i], object.elements[i])) return true;
  }
  return false;
}

}  // namespace

bool is_galvatron_computation(const JsonValue& object) {
  return some_member(object, [](const std::string& key, const JsonValue& value) {
    return value.kind != JsonValue::Kind::Object && parse_time_key(key).has_value();
  });
}

bool is_galvatron_memory(const JsonValue& object) {
  return some_member(object, [](const std::string& key, const JsonValue& value) {
    return value.kind == JsonValue::Kind::Object && begins_with(key, kPrefix);
  });
}

ImportedProfile import_galvatron(const std::vector<ForeignModelFile>& files,
                                 const ForeignProfileOptions& options) {
  const auto is_memory = [](const ForeignModelFile& file) {
    const std::optional<JsonValue> object = object_in(file.text);
    return object && is_galvatron_memory(*object);
  };
  const bool is_pair = files.size() == 2 && is_memory(files[0]) != is_memory(files[1]);
  if (!is_pair) {
    throw Error{ErrorKind::BadInput,
                files.front().name,
                {{"", fmt::format("expected two files, of computation and of memory, got {}",
                                  files.size() == 2 ? "two of one kind"
                                                    : fmt::format("{}", files.size()))}}};
  }
  const std::size_t memory = is_memory(files[0]) ? 0 : 1;
  return GalvatronImporter(files[1 - memory], files[memory], options).run();
}

}  // namespace dapple::interop
