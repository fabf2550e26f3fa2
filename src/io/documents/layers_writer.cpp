#include <fmt/format.h>

#include <algorithm>

#include "dapple/core/error.h"
#include "io/documents/layers_json.h"

namespace dapple::io {
namespace {

/// Whether two layers agree in everything that a repeated entry states, other than their ties.
bool is_copy(const Layer& a, const Layer& b) {
  return a.parameters == b.parameters && a.fixed_overhead == b.fixed_overhead &&
         a.operation == b.operation && a.measurements == b.measurements &&
         a.other_times == b.other_times && a.variants == b.variants;
}

bool follows(const Layer& layer, std::size_t position) {
  return layer.inputs.size() == 1 && layer.inputs.front() == index_at<LayerIndex>(position - 1);
}

/// Returns the number of layers from `first` on that a repeated entry named `stem` can represent.
std::size_t count_copies(const ModelProfile& profile, std::size_t first, const std::string& stem) {
  const std::vector<Layer>& layers = profile.layers;
  const auto owner_of = [&](std::size_t layer) {
    return tied_to(profile, index_at<LayerIndex>(layer));
  };
  std::size_t count = 1;
  while (first + count < layers.size() &&
         layers[first + count].name == fmt::format("{}.{}", stem, count) &&
         is_copy(layers[first], layers[first + count]) &&
         owner_of(first) == owner_of(first + count) &&
         follows(layers[first + count], first + count))
    ++count;
  return count;
}

/// Returns NAME if `name` is NAME.0, or an empty text otherwise.
std::string stem_of(const std::string& name) {
  constexpr std::string_view kFirst = ".0";
  if (name.size() <= kFirst.size() || name.substr(name.size() - kFirst.size()) != kFirst) return "";
  return name.substr(0, name.size() - kFirst.size());
}

void write_measurement(JsonWriter& writer, const Measurement& measurement, Figures figures) {
  writer.open_object(JsonWriter::Layout::Line);
  writer.key("batch_size").integer(measurement.batch_size);
  writer.key("forward_ns").integer(measurement.forward.ns);
  writer.key("backward_ns").integer(measurement.backward.ns);
  if (measurement.input_gradient)
    writer.key("input_gradient_ns").integer(measurement.input_gradient->ns);
  if (measurement.weight_gradient)
    writer.key("weight_gradient_ns").integer(measurement.weight_gradient->ns);
  if (measurement.core.forward.ns != 0)
    writer.key("forward_core_ns").integer(measurement.core.forward.ns);
  if (measurement.core.backward.ns != 0)
    writer.key("backward_core_ns").integer(measurement.core.backward.ns);
  if (figures == Figures::TimesAndSizes) {
    writer.key("output_bytes").integer(measurement.output.count);
    writer.key("stash_bytes").integer(measurement.stash.count);
    if (measurement.workspace.count != 0)
      writer.key("workspace_bytes").integer(measurement.workspace.count);
  }
  writer.close();
}

void write_measurements(JsonWriter& writer, const std::vector<Measurement>& measurements,
                        Figures figures = Figures::TimesAndSizes) {
  writer.key("measurements")
      .open_array(measurements.size() == 1 ? JsonWriter::Layout::Line : JsonWriter::Layout::Lines);
  for (const Measurement& measurement : measurements) {
    write_measurement(writer, measurement, figures);
  }
  writer.close();
}

void write_other_times(JsonWriter& writer, const std::vector<std::string>& devices,
                       const std::vector<DeviceTimes>& times) {
  if (times.empty()) return;
  writer.key("other_times").open_array(JsonWriter::Layout::Lines);
  for (std::size_t i = 0; i < times.size(); ++i) {
    writer.open_object(JsonWriter::Layout::Lines);
    writer.key("device").text(devices[i]);
    if (times[i].fixed_overhead.ns != 0)
      writer.key("fixed_overhead_ns").integer(times[i].fixed_overhead.ns);
    write_measurements(writer, times[i].measurements, Figures::Times);
    writer.close();
  }
  writer.close();
}

void write_collectives(JsonWriter& writer, const char* key,
                       const std::vector<Collective>& collectives) {
  if (collectives.empty()) return;
  writer.key(key).open_array(JsonWriter::Layout::Line);
  for (const Collective& collective : collectives) {
    writer.open_object(JsonWriter::Layout::Line);
    writer.key("kind").text(to_string(collective.kind));
    if (collective.over != CollectiveMembers::Tensor)
      writer.key("over").text(to_string(collective.over));
    writer.key("bytes_per_sample").integer(collective.size_per_sample.count);
    if (collective.count != 1) writer.key("count").integer(collective.count);
    if (collective.beside != Beside::Nothing) {
      writer.key("beside").text(collective.beside == Beside::ForwardCore ? "forward_core"
                                                                         : "backward_core");
    }
    if (collective.merged) {
      writer.key("merged").open_object(JsonWriter::Layout::Line);
      writer.key("copies").integer(collective.merged->copies);
      writer.key("experts").integer(collective.merged->experts);
      writer.close();
    }
    writer.close();
  }
  writer.close();
}

void write_variants(JsonWriter& writer, const std::vector<LayerVariant>& variants,
                    const std::vector<std::string>& other_devices) {
  writer.key("variants").open_array(JsonWriter::Layout::Lines);
  for (const LayerVariant& variant : variants) {
    writer.open_object(JsonWriter::Layout::Lines);
    writer.key("tensor_parallel").integer(variant.parallelism.tensor);
    if (variant.parallelism.sequence) writer.key("sequence_parallel").boolean(true);
    if (variant.parallelism.context > 1)
      writer.key("context_parallel").integer(variant.parallelism.context);
    if (variant.parallelism.experts > 1) {
      writer.key("expert_parallel").integer(variant.parallelism.experts);
      writer.key("expert_tensor_parallel").integer(variant.parallelism.expert_tensor);
    }
    write_recomputed_parts(writer, variant.parallelism.recomputes);
    writer.key("parameter_bytes").integer(variant.parameters.count);
    if (variant.expert_parameters.count != 0)
      writer.key("expert_parameter_bytes").integer(variant.expert_parameters.count);
    if (variant.fixed_overhead.ns != 0)
      writer.key("fixed_overhead_ns").integer(variant.fixed_overhead.ns);
    write_measurements(writer, variant.measurements);
    write_other_times(writer, other_devices, variant.other_times);
    write_collectives(writer, "forward_collectives", variant.forward_collectives);
    write_collectives(writer, "backward_collectives", variant.backward_collectives);
    writer.close();
  }
  writer.close();
}

void write_inputs(JsonWriter& writer, const std::vector<Layer>& layers, std::size_t position) {
  const Layer& layer = layers[position];
  if (position == 0 ? layer.inputs.empty() : follows(layer, position)) return;
  writer.key("inputs").open_array(JsonWriter::Layout::Line);
  for (const LayerIndex input : layer.inputs) writer.text(layers[input.position()].name);
  writer.close();
}

}  // namespace

void write_layers(JsonWriter& writer, const ModelProfile& profile) {
  const std::vector<Layer>& layers = profile.layers;
  writer.open_array(JsonWriter::Layout::Lines);
  for (std::size_t position = 0; position < layers.size();) {
    const Layer& layer = layers[position];
    const std::string stem = stem_of(layer.name);
    const std::size_t count = stem.empty() ? 1 : count_copies(profile, position, stem);
    writer.open_object(JsonWriter::Layout::Lines);
    writer.key("name").text(count > 1 ? stem : layer.name);
    if (count > 1) writer.key("repeat").integer(static_cast<std::int64_t>(count));
    writer.key("parameter_bytes").integer(layer.parameters.count);
    if (layer.fixed_overhead.ns != 0)
      writer.key("fixed_overhead_ns").integer(layer.fixed_overhead.ns);
    write_inputs(writer, layers, position);
    if (const auto owner = tied_to(profile, index_at<LayerIndex>(position)))
      writer.key("tied_to").text(layers[owner->position()].name);
    if (!layer.operation.empty()) writer.key("op").raw(layer.operation);
    if (!layer.measurements.empty()) write_measurements(writer, layer.measurements);
    write_other_times(writer, profile.other_devices, layer.other_times);
    if (!layer.variants.empty()) write_variants(writer, layer.variants, profile.other_devices);
    writer.close();
    position += count;
  }
  writer.close();
}

void write_recomputed_parts(JsonWriter& writer, RecomputedParts parts) {
  if (!parts.none()) writer.key("recompute").text(to_text(parts));
}

void write_recomputed_layers(JsonWriter& writer, LayerSelection layers) {
  if (layers.is_all()) return;
  const bool are_first = layers.kind() == LayerSelection::Kind::First;
  writer.key(are_first ? "recomputed_layers" : "recompute_every").integer(layers.number());
}

}  // namespace dapple::io
