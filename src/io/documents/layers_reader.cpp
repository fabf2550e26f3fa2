#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "dapple/profile/limits.h"
#include "io/documents/layers_json.h"

namespace dapple::io {
namespace {

constexpr std::size_t kMaxOperationLength = 1'000;
constexpr IntegerRange kCollectiveCount{1, kMaxContextParallel};
constexpr std::size_t kMaxCollectives = 16;

/// An entry of "layers": one layer, or `repeat` copies of it.
struct Entry {
  Layer layer;
  std::int64_t repeat = 1;
  bool is_repeated = false;
  // The inputs of the first copy.
  std::optional<std::vector<std::string>> input_names;
  // The layer to which every copy is tied.
  std::optional<std::string> tied_to;
  // The kinds of device of Layer::other_times.
  std::vector<std::string> other_devices;
  // The position in the array.
  std::size_t position = 0;

  std::string name_of_copy(std::int64_t copy) const {
    return is_repeated ? fmt::format("{}.{}", layer.name, copy) : layer.name;
  }
};

void read_gradient_split(ObjectReader& object, Measurement& measurement) {
  const Field input = object.field("input_gradient_ns");
  const Field weight = object.field("weight_gradient_ns");
  if (!input.present() && !weight.present()) return;
  const auto input_ns = read_integer(input, {});
  const auto weight_ns = read_integer(weight, {});
  if (!input_ns || !weight_ns) return;
  measurement.input_gradient = Duration{*input_ns};
  measurement.weight_gradient = Duration{*weight_ns};
  if (*input_ns + *weight_ns != measurement.backward.ns) {
    input.add(
        fmt::format("expected input_gradient_ns and weight_gradient_ns to add up to backward_ns "
                    "{}, got {} + {}",
                    measurement.backward.ns, *input_ns, *weight_ns));
  }
}

/// Reads the part of a pass that is the core of attention.
Duration read_core(const Field& field, Duration pass) {
  const Duration core{optional_integer(field, {}, 0)};
  if (core > pass) field.refuse(fmt::format("at most the whole pass, {} ns", pass.ns));
  return core;
}

Measurement read_measurement(const Field& field, Figures figures) {
  ObjectReader object(field);
  Measurement measurement;
  measurement.batch_size = required_integer(object.field("batch_size"), kSampleRange);
  measurement.forward.ns = required_integer(object.field("forward_ns"), {});
  measurement.backward.ns = required_integer(object.field("backward_ns"), {});
  read_gradient_split(object, measurement);
  measurement.core.forward = read_core(object.field("forward_core_ns"), measurement.forward);
  measurement.core.backward = read_core(object.field("backward_core_ns"), measurement.backward);
  if (figures == Figures::TimesAndSizes) {
    measurement.output.count = required_integer(object.field("output_bytes"), {});
    measurement.stash.count = required_integer(object.field("stash_bytes"), {});
    measurement.workspace.count = optional_integer(object.field("workspace_bytes"), {}, 0);
  }
  object.finish();
  return measurement;
}

std::vector<Measurement> read_measurements(const Field& field,
                                           Figures figures = Figures::TimesAndSizes) {
  const ArrayReader array(field, "an array of measurements");
  std::vector<Measurement> measurements;
  if (array.valid() && array.size() == 0) field.refuse("at least one measurement");
  for (std::size_t i = 0; i < array.size(); ++i) {
    const std::size_t faults_before = field.violations()->count();
    measurements.push_back(read_measurement(array.at(i), figures));
    const bool is_read = field.violations()->count() == faults_before;
    if (i > 0 && is_read && measurements[i].batch_size <= measurements[i - 1].batch_size) {
      array.at(i).add(
          fmt::format("expected a batch_size above that of the measurement before, {}, "
                      "got {}",
                      measurements[i - 1].batch_size, measurements[i].batch_size));
    }
  }
  return measurements;
}

Duration read_fixed_overhead(const Field& field, const std::vector<Measurement>& measurements) {
  if (!field.present()) return {};
  const Duration overhead{required_integer(field, {})};
  if (measurements.size() > 1) {
    field.add(fmt::format("expected no fixed_overhead_ns with {} measurements, got one",
                          measurements.size()));
  }
  if (measurements.size() != 1) return overhead;
  const Measurement& measurement = measurements.front();
  // The core grows with the samples, and the overhead does not: it is of the rest of a pass.
  Duration most = measurement.forward - measurement.core.forward;
  if (measurement.backward.ns != 0)
    most = std::min(most, measurement.backward - measurement.core.backward);
  if (overhead > most) {
    const bool has_core = measurement.core != CoreTimes{};
    field.refuse(fmt::format("at most the layer's shorter time{}, {} ns",
                             has_core ? " without the core of attention" : "", most.ns));
  }
  return overhead;
}

/// Times on other kinds of device, by rising name of the kind.
using OtherTimes = std::map<std::string, DeviceTimes>;

OtherTimes read_other_times(const Field& field) {
  if (!field.present()) return {};
  const ArrayReader array(field, "an array of times on other kinds of device");
  if (array.size() > kMaxOtherDevices) {
    field.add(fmt::format("expected at most {} other kinds of device, got {}", kMaxOtherDevices,
                          array.size()));
    return {};
  }
  OtherTimes others;
  for (std::size_t i = 0; i < array.size(); ++i) {
    ObjectReader object(array.at(i));
    if (!object.valid()) continue;
    const Field device = object.field("device");
    DeviceTimes times;
    const Field overhead = object.field("fixed_overhead_ns");
    times.measurements = read_measurements(object.field("measurements"), Figures::Times);
    times.fixed_overhead = read_fixed_overhead(overhead, times.measurements);
    object.finish();
    const std::optional<std::string> name = read_name(device);
    if (!name) continue;
    if (!others.emplace(*name, std::move(times)).second) {
      device.refuse("a kind of device that was not named before");
    }
  }
  return others;
}

/// Divides the times from the names of their kinds.
std::vector<std::string> take_other_times(OtherTimes&& others, std::vector<DeviceTimes>& times) {
  std::vector<std::string> names;
  for (auto& [name, of_kind] : others) {
    names.push_back(name);
    times.push_back(std::move(of_kind));
  }
  return names;
}

/// Returns the names for a message, such as "times on A and B", or "no times".
std::string times_on(const std::vector<std::string>& devices) {
  if (devices.empty()) return "no times on other kinds";
  std::string text = "times on ";
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (i > 0) text += i + 1 == devices.size() ? " and " : ", ";
    text += quoted(devices[i]);
  }
  return text;
}

/// Reads how a dispatcher merges copies for the ranks of a variant, between which its experts are
/// divided.
MergedCopies read_merged(const Field& field, std::int64_t ranks) {
  ObjectReader object(field);
  const Field field_of_experts = object.field("experts");
  const auto experts = read_integer(field_of_experts, {1, kMaxExperts});
  if (experts && *experts % ranks != 0) {
    field_of_experts.refuse(fmt::format("a multiple of the {} expert-parallel ranks", ranks));
  }
  const std::int64_t copies =
      required_integer(object.field("copies"), {1, experts.value_or(kMaxExperts)});
  object.finish();
  return {.copies = copies, .experts = experts.value_or(kMaxExperts)};
}

Collective read_collective(const Field& field, const Parallelism& degrees) {
  ObjectReader object(field);
  Collective collective;
  std::vector<std::string_view> names;
  for (const CollectiveKind kind : kCollectiveKinds) names.push_back(to_string(kind));
  const std::optional<std::size_t> kind = read_choice(object.field("kind"), names);
  collective.kind = kCollectiveKinds[kind.value_or(0)];
  if (const Field over = object.field("over"); over.present()) {
    names.clear();
    for (const CollectiveMembers members : kCollectiveMembers) names.push_back(to_string(members));
    collective.over = kCollectiveMembers[read_choice(over, names).value_or(0)];
  }
  collective.size_per_sample.count = required_integer(object.field("bytes_per_sample"), {});
  collective.count = optional_integer(object.field("count"), kCollectiveCount, 1);
  if (const Field beside = object.field("beside"); beside.present()) {
    constexpr Beside kCores[] = {Beside::ForwardCore, Beside::BackwardCore};
    collective.beside = kCores[read_choice(beside, {"forward_core", "backward_core"}).value_or(0)];
    if (kind && collective.kind != CollectiveKind::SendReceive) {
      beside.refuse("no such key, as only send-receives pass beside the core of attention");
    }
  }
  if (const Field merged = object.field("merged"); merged.present()) {
    collective.merged = read_merged(merged, degrees.experts);
    if (kind && (collective.kind != CollectiveKind::AllToAll ||
                 collective.over != CollectiveMembers::Experts)) {
      merged.refuse("no such key, as only all-to-alls over experts merge copies");
    }
  }
  object.finish();
  return collective;
}

std::vector<Collective> read_collectives(const Field& field, const Parallelism& degrees) {
  if (!field.present()) return {};
  const ArrayReader array(field, "an array of collectives");
  std::vector<Collective> collectives;
  if (array.size() > kMaxCollectives) {
    field.add(
        fmt::format("expected at most {} collectives, got {}", kMaxCollectives, array.size()));
    return {};
  }
  for (std::size_t i = 0; i < array.size(); ++i) {
    collectives.push_back(read_collective(array.at(i), degrees));
  }
  return collectives;
}

/// Reads the degrees of a variant and what it recomputes; not all of it is the default.
Parallelism read_degrees(const Field& variant, ObjectReader& object) {
  Parallelism degrees;
  degrees.tensor = required_integer(object.field("tensor_parallel"), {1, kMaxTensorParallel});
  const Field sequence = object.field("sequence_parallel");
  if (sequence.present()) degrees.sequence = read_boolean(sequence).value_or(false);
  degrees.context = optional_integer(object.field("context_parallel"), {1, kMaxContextParallel}, 1);
  degrees.experts = optional_integer(object.field("expert_parallel"), {1, kMaxGroup}, 1);
  const Field expert_tensor = object.field("expert_tensor_parallel");
  if (degrees.experts > 1) {
    degrees.expert_tensor =
        optional_integer(expert_tensor, {1, kMaxTensorParallel}, degrees.tensor);
  } else if (expert_tensor.present()) {
    expert_tensor.refuse("no such key, as there is no expert parallelism");
  }
  degrees.recomputes = read_recomputed_parts(object.field("recompute"));
  if (!object.valid()) return degrees;
  if (degrees.sequence && degrees.tensor == 1) {
    sequence.refuse("false, as there is no tensor parallelism");
  } else if (degrees.is_none()) {
    object.field("tensor_parallel")
        .refuse("2 or more, another degree of 2 or more, or recomputed parts");
  } else if (degrees.group_size() > kMaxGroup || !degrees.is_sound()) {
    variant.refuse(kSoundDegrees);
  }
  return degrees;
}

LayerVariant read_variant(const Field& field, const std::vector<std::string>& other_devices) {
  ObjectReader object(field);
  LayerVariant variant;
  variant.parallelism = read_degrees(field, object);
  variant.parameters.count = required_integer(object.field("parameter_bytes"), {});
  variant.expert_parameters.count =
      optional_integer(object.field("expert_parameter_bytes"),
                       {0, std::max<std::int64_t>(0, variant.parameters.count)}, 0);
  const Field overhead = object.field("fixed_overhead_ns");
  const Field measurements = object.field("measurements");
  if (object.valid()) variant.measurements = read_measurements(measurements);
  variant.fixed_overhead = read_fixed_overhead(overhead, variant.measurements);
  const std::vector<std::string> devices =
      take_other_times(read_other_times(object.field("other_times")), variant.other_times);
  if (object.valid() && devices != other_devices) {
    field.add(fmt::format("expected {}, as the layer has, got {}", times_on(other_devices),
                          times_on(devices)));
  }
  variant.forward_collectives =
      read_collectives(object.field("forward_collectives"), variant.parallelism);
  variant.backward_collectives =
      read_collectives(object.field("backward_collectives"), variant.parallelism);
  object.finish();
  return variant;
}

/// Reads the variants of a layer, in the order of their parallelism.
std::vector<LayerVariant> read_variants(const Field& field, const Layer& layer,
                                        const std::vector<std::string>& other_devices) {
  if (!field.present()) return {};
  if (layer.measurements.empty()) field.refuse("no variants of a layer without measurements");
  const ArrayReader array(field, "an array of variants");
  std::vector<LayerVariant> variants;
  if (array.size() > kMaxVariants) {
    field.add(fmt::format("expected at most {} variants, got {}", kMaxVariants, array.size()));
    return {};
  }
  for (std::size_t i = 0; i < array.size(); ++i) {
    const std::size_t faults_before = field.violations()->count();
    LayerVariant variant = read_variant(array.at(i), other_devices);
    if (field.violations()->count() != faults_before) continue;
    if ((variant.parameters.count == 0) != (layer.parameters.count == 0)) {
      array.at(i).add(
          fmt::format("expected parameters where the layer has some, which are {} "
                      "bytes, and none elsewhere, got {} bytes",
                      layer.parameters.count, variant.parameters.count));
    }
    const auto at = std::lower_bound(
        variants.begin(), variants.end(), variant,
        [](const LayerVariant& a, const LayerVariant& b) { return a.parallelism < b.parallelism; });
    if (at != variants.end() && at->parallelism == variant.parallelism) {
      array.at(i).add(fmt::format("expected one variant of each parallelism, got another for {}",
                                  to_text(variant.parallelism)));
      continue;
    }
    variants.insert(at, std::move(variant));
  }
  return variants;
}

/// Records repeated keys at any level of an operation. Its other content is checked by those who
/// run it (read_operations()).
void check_keys(const Field& field) {
  if (field.value_of_kind(JsonValue::Kind::Array) != nullptr) {
    const ArrayReader array(field, "");
    for (std::size_t i = 0; i < array.size(); ++i) check_keys(array.at(i));
  } else if (field.value_of_kind(JsonValue::Kind::Object) != nullptr) {
    ObjectReader object(field);
    for (const Field& member : object.members()) check_keys(member);
    object.finish();
  }
}

std::string read_operation(const Field& field) {
  if (!field.present()) return "";
  check_keys(field);
  if (field.value_of_kind(JsonValue::Kind::Object) == nullptr) {
    field.refuse("an object");
    return "";
  }
  std::string text = canonical_text(field.value());
  if (text.size() > kMaxOperationLength) {
    field.add(
        fmt::format("expected at most {} characters, got {}", kMaxOperationLength, text.size()));
  }
  return text;
}

std::vector<std::string> read_input_names(const Field& field) {
  const ArrayReader array(field, "an array of layer names");
  std::vector<std::string> names;
  for (std::size_t i = 0; i < array.size(); ++i) {
    std::optional<std::string> name = read_name(array.at(i));
    if (!name) continue;
    if (std::find(names.begin(), names.end(), *name) != names.end())
      array.at(i).refuse("each input once");
    names.push_back(std::move(*name));
  }
  return names;
}

void read_repeat(ObjectReader& object, Entry& entry) {
  const Field repeat = object.field("repeat");
  entry.is_repeated = repeat.present();
  entry.repeat = optional_integer(repeat, {1, kMaxLayers}, 1);
  constexpr std::size_t kMaxName = 200;
  if (entry.is_repeated && entry.name_of_copy(entry.repeat - 1).size() > kMaxName)
    object.field("name").refuse("a name of at most 200 characters with the number of its copy");
}

Entry read_entry(const Field& field, bool needs_measurements) {
  ObjectReader object(field);
  Entry entry;
  entry.layer.name = read_name(object.field("name")).value_or("");
  read_repeat(object, entry);
  entry.layer.parameters.count = required_integer(object.field("parameter_bytes"), {});
  const Field overhead = object.field("fixed_overhead_ns");
  if (const Field inputs = object.field("inputs"); inputs.present())
    entry.input_names = read_input_names(inputs);
  if (const Field tied = object.field("tied_to"); tied.present()) entry.tied_to = read_name(tied);
  entry.layer.operation = read_operation(object.field("op"));
  const Field measurements = object.field("measurements");
  if (object.valid() && (needs_measurements || measurements.present()))
    entry.layer.measurements = read_measurements(measurements);
  entry.layer.fixed_overhead = read_fixed_overhead(overhead, entry.layer.measurements);
  const Field other_times = object.field("other_times");
  if (entry.layer.measurements.empty() && other_times.present()) {
    other_times.refuse("no other times of a layer without measurements");
  }
  entry.other_devices = take_other_times(read_other_times(other_times), entry.layer.other_times);
  entry.layer.variants = read_variants(object.field("variants"), entry.layer, entry.other_devices);
  object.refuse_reserved({"slices", "frozen_prefix", "fused_jobs"});
  object.finish();
  return entry;
}

bool has_key(const JsonValue& object, std::string_view key) {
  return std::find(object.keys.begin(), object.keys.end(), key) != object.keys.end();
}

/// Whether no entry has measurements, so that the file describes the model but not its costs.
bool is_specification(const ArrayReader& array) {
  bool has_layers = false;
  for (std::size_t i = 0; i < array.size(); ++i) {
    const JsonValue& entry = array.at(i).value();
    if (has_key(entry, "measurements")) return false;
    has_layers = has_layers || entry.kind == JsonValue::Kind::Object;
  }
  return has_layers;
}

/// Records a violation and returns false if there are more layers or measurements than a profile
/// may have.
bool check_totals(const Field& field, const std::vector<Entry>& entries) {
  std::int64_t layers = 0;
  std::int64_t measurements = 0;
  for (const Entry& entry : entries) {
    layers += entry.repeat;
    const auto all_of = [](const auto& measured) {
      std::size_t all = measured.measurements.size();
      for (const DeviceTimes& times : measured.other_times) all += times.measurements.size();
      return all;
    };
    std::size_t of_one = all_of(entry.layer);
    for (const LayerVariant& variant : entry.layer.variants) of_one += all_of(variant);
    measurements += entry.repeat * static_cast<std::int64_t>(of_one);
  }
  if (layers > kMaxLayers)
    field.add(fmt::format("expected at most {} layers, got {}", kMaxLayers, layers));
  if (measurements > kMaxMeasurements) {
    field.add(
        fmt::format("expected at most {} measurements, got {}", kMaxMeasurements, measurements));
  }
  return layers <= kMaxLayers && measurements <= kMaxMeasurements;
}

/// The expanded layers in the order of the file, with their inputs as positions in that order.
class Expansion {
 public:
  Expansion(const ArrayReader& array, const std::vector<Entry>& entries) : array_(array) {
    for (const Entry& entry : entries) add_copies(entry);
    for (const Entry& entry : entries) connect(entry);
    tied_to_.resize(layers_.size());
    std::size_t first = 0;
    for (const Entry& entry : entries) {
      tie(entry, first);
      first += static_cast<std::size_t>(entry.repeat);
    }
  }

  /// Returns the layers in topological order, with their ties. Records a violation for a cycle, and
  /// then returns nothing, and for each invalid tie.
  ProfileLayers in_order();

 private:
  void add_copies(const Entry& entry);
  void connect(const Entry& entry);
  void tie(const Entry& entry, std::size_t first);
  std::vector<Tie> ties_in(const std::vector<std::int32_t>& position_of) const;
  void refuse_tie(std::size_t layer, const std::string& expected) const;
  void report_cycle(const std::vector<std::int32_t>& order) const;
  Field field_of(std::size_t layer) const { return array_.at(entry_of_[layer]); }

  const ArrayReader& array_;
  std::vector<Layer> layers_;
  // The position of each layer's entry in the array.
  std::vector<std::size_t> entry_of_;
  // The inputs of each layer.
  std::vector<std::vector<std::int32_t>> inputs_;
  std::vector<std::optional<std::int32_t>> tied_to_;
  std::map<std::string, std::int32_t> by_name_;
  std::size_t connected_ = 0;
};

void Expansion::add_copies(const Entry& entry) {
  for (std::int64_t copy = 0; copy < entry.repeat; ++copy) {
    Layer layer = entry.layer;
    layer.name = entry.name_of_copy(copy);
    const auto [at, is_new] =
        by_name_.emplace(layer.name, static_cast<std::int32_t>(layers_.size()));
    if (!is_new) {
      ObjectReader object(array_.at(entry.position));
      object.field("name").add(
          fmt::format("expected a layer name of its own, got {}, which /layers/{} has",
                      quoted(layer.name), entry_of_[static_cast<std::size_t>(at->second)]));
    }
    layers_.push_back(std::move(layer));
    entry_of_.push_back(entry.position);
  }
}

void Expansion::connect(const Entry& entry) {
  for (std::int64_t copy = 0; copy < entry.repeat; ++copy, ++connected_) {
    std::vector<std::int32_t>& inputs = inputs_.emplace_back();
    if (copy > 0 || !entry.input_names) {
      if (connected_ > 0) inputs.push_back(static_cast<std::int32_t>(connected_) - 1);
      continue;
    }
    ObjectReader object(array_.at(entry.position));
    const ArrayReader names(object.field("inputs"), "");
    for (std::size_t i = 0; i < entry.input_names->size(); ++i) {
      const auto at = by_name_.find((*entry.input_names)[i]);
      if (at == by_name_.end()) {
        names.at(i).refuse("the name of a layer (after repeat)");
      } else {
        inputs.push_back(at->second);
      }
    }
  }
}

/// Stores the layer to which the entry's layers, from `first` on, are tied.
void Expansion::tie(const Entry& entry, std::size_t first) {
  if (!entry.tied_to) return;
  const auto owner = by_name_.find(*entry.tied_to);
  if (owner == by_name_.end()) return refuse_tie(first, "the name of a layer (after repeat)");
  const auto copies = static_cast<std::size_t>(entry.repeat);
  for (std::size_t layer = first; layer < first + copies; ++layer) tied_to_[layer] = owner->second;
}

void Expansion::refuse_tie(std::size_t layer, const std::string& expected) const {
  ObjectReader object(field_of(layer));
  object.field("tied_to").refuse(expected);
}

/// Returns the ties, ordered by owner, given the position of each layer in topological order.
/// Records a violation for each invalid tie.
std::vector<Tie> Expansion::ties_in(const std::vector<std::int32_t>& position_of) const {
  std::map<LayerIndex, Tie> ties;
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    if (!tied_to_[layer]) continue;
    const auto from = static_cast<std::size_t>(*tied_to_[layer]);
    const LayerIndex owner{position_of[from]};
    const LayerIndex user{position_of[layer]};
    if (tied_to_[from]) {
      refuse_tie(layer, "a layer that is not tied itself");
    } else if (layers_[from].parameters.count == 0) {
      refuse_tie(layer, "a layer with parameters");
    } else if (owner >= user) {
      refuse_tie(layer, "a layer that runs before it");
    } else {
      Tie& tie = ties[owner];
      tie.owner = owner;
      tie.users.insert(std::upper_bound(tie.users.begin(), tie.users.end(), user), user);
    }
  }
  std::vector<Tie> by_owner;
  for (auto& [owner, tie] : ties) by_owner.push_back(std::move(tie));
  return by_owner;
}

ProfileLayers Expansion::in_order() {
  const std::vector<std::int32_t> order = topological_order(inputs_);
  if (order.size() < layers_.size()) {
    report_cycle(order);
    return {};
  }
  std::vector<std::int32_t> position_of(layers_.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    position_of[static_cast<std::size_t>(order[i])] = static_cast<std::int32_t>(i);
  ProfileLayers result{.layers = {}, .ties = ties_in(position_of), .other_devices = {}};
  std::vector<Layer>& ordered = result.layers;
  ordered.reserve(layers_.size());
  for (const std::int32_t from : order) {
    const auto position = static_cast<std::size_t>(from);
    Layer& layer = ordered.emplace_back(std::move(layers_[position]));
    for (const std::int32_t input : inputs_[position])
      layer.inputs.push_back(LayerIndex{position_of[static_cast<std::size_t>(input)]});
    std::sort(layer.inputs.begin(), layer.inputs.end());
  }
  return result;
}

void Expansion::report_cycle(const std::vector<std::int32_t>& order) const {
  std::vector<bool> is_ordered(layers_.size(), false);
  for (const std::int32_t layer : order) is_ordered[static_cast<std::size_t>(layer)] = true;
  // Every layer that is not ordered has an input that is not ordered, so that following such inputs
  // leads into a cycle.
  std::vector<std::size_t> visit(layers_.size(), 0);  // 1 for the first visited, 0: not visited
  std::vector<std::size_t> way;
  auto next = static_cast<std::size_t>(std::find(is_ordered.begin(), is_ordered.end(), false) -
                                       is_ordered.begin());
  while (visit[next] == 0) {
    way.push_back(next);
    visit[next] = way.size();
    const std::vector<std::int32_t>& inputs = inputs_[next];
    next = static_cast<std::size_t>(
        *std::find_if(inputs.begin(), inputs.end(), [&is_ordered](std::int32_t input) {
          return !is_ordered[static_cast<std::size_t>(input)];
        }));
  }
  constexpr std::size_t kMaxShown = 8;
  const std::size_t first = visit[next] - 1;
  const std::string first_name = quoted(layers_[next].name);
  std::string names = first_name + " -> ";
  std::size_t shown = 1;
  for (std::size_t i = way.size() - 1; i > first && shown < kMaxShown; --i, ++shown)
    names += quoted(layers_[way[i]].name) + " -> ";
  if (way.size() - first > kMaxShown) names += "... -> ";
  names += first_name;
  ObjectReader object(field_of(next));
  object.field("inputs").add(fmt::format("expected inputs without a cycle, got {}", names));
}

}  // namespace

ProfileLayers read_layers(const Field& field, Measurements measurements) {
  const ArrayReader array(field, "an array of layers");
  if (!array.valid()) return {};
  if (array.size() == 0) field.refuse("at least one layer");
  const std::size_t faults_before = field.violations()->count();
  const bool needs_measurements = !is_specification(array);
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < array.size(); ++i) {
    entries.push_back(read_entry(array.at(i), needs_measurements));
    entries.back().position = i;
  }
  if (!needs_measurements && measurements == Measurements::Required) {
    field.add(
        "expected measurements, got a specification: no layer has any, so the model has to be "
        "profiled before it can be planned");
  }
  for (std::size_t i = 1; i < entries.size(); ++i) {
    if (entries[i].other_devices == entries.front().other_devices) continue;
    array.at(i).add(
        fmt::format("expected {}, as layer {} has, got {}", times_on(entries.front().other_devices),
                    quoted(entries.front().layer.name), times_on(entries[i].other_devices)));
  }
  const bool is_small = check_totals(field, entries);
  // Violations of single layers would only cause further ones in the graph.
  if (!is_small || field.violations()->count() != faults_before) return {};
  Expansion expansion(array, entries);
  if (field.violations()->count() != faults_before) return {};
  ProfileLayers layers = expansion.in_order();
  if (!entries.empty()) layers.other_devices = std::move(entries.front().other_devices);
  return layers;
}

RecomputedParts read_recomputed_parts(const Field& field) {
  if (!field.present()) return {};
  const std::optional<std::string> text = read_text(field);
  if (!text) return {};
  const std::optional<RecomputedParts> parts = recomputed_parts(*text);
  if (!parts || parts->none()) {
    std::string names;
    for (const RecomputedPart part : kRecomputedParts) {
      names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(part));
    }
    field.refuse(fmt::format("parts of a layer with + between them, of {}", names));
    return {};
  }
  if (!parts->is_sound()) field.refuse(kSoundRecomputation);
  return *parts;
}

LayerSelection read_recomputed_layers(ObjectReader& object, RecomputedParts parts) {
  const Field first = object.field("recomputed_layers");
  const Field every = object.field("recompute_every");
  for (const Field& field : {first, every}) {
    if (!field.present() || !parts.none()) continue;
    field.refuse("no such key, as layers recompute nothing");
    return {};
  }
  if (first.present() && every.present()) {
    every.refuse("no such key with recomputed_layers");
  } else if (first.present()) {
    const std::int64_t count = required_integer(first, {1, kMaxLayers});
    if (count >= 1) return LayerSelection::first(count);
  } else if (every.present()) {
    const std::int64_t n = required_integer(every, {2, kMaxLayers});
    if (n >= 2) return LayerSelection::every(n);
  }
  return {};
}

}  // namespace dapple::io
