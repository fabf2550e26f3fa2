#include <fmt/format.h>

#include <algorithm>

#include "dapple/io/documents/documents.h"
#include "dapple/profile/limits.h"
#include "io/documents/embedded.h"
#include "io/documents/layers_json.h"
#include "io/json/number_text.h"

namespace dapple::io {
namespace {

constexpr FactorRange kPerByte{Factor{0}, Factor{1'000 * kOne.billionths}};

Optimizer read_optimizer(const Field& field) {
  ObjectReader object(field);
  Optimizer optimizer;
  optimizer.name = read_name(object.field("name")).value_or("");
  optimizer.state_bytes_per_parameter_byte =
      read_factor(object.field("state_bytes_per_parameter_byte"), kPerByte).value_or(Factor{});
  if (const Field gradient = object.field("gradient_bytes_per_parameter_byte"); gradient.present())
    optimizer.gradient_bytes_per_parameter_byte = read_factor(gradient, kPerByte).value_or(kOne);
  if (const Field kept = object.field("framework_bytes_per_parameter_byte"); kept.present())
    optimizer.framework_bytes_per_parameter_byte = read_factor(kept, kPerByte).value_or(Factor{});
  if (const Field step = object.field("step_ns_per_parameter_byte"); step.present())
    optimizer.step_ns_per_parameter_byte = read_factor(step, kPerByte);
  object.finish();
  return optimizer;
}

void write_optimizer(JsonWriter& writer, const Optimizer& optimizer) {
  writer.open_object(JsonWriter::Layout::Line);
  writer.key("name").text(optimizer.name);
  writer.key("state_bytes_per_parameter_byte")
      .raw(factor_text(optimizer.state_bytes_per_parameter_byte));
  if (optimizer.gradient_bytes_per_parameter_byte != kOne) {
    writer.key("gradient_bytes_per_parameter_byte")
        .raw(factor_text(optimizer.gradient_bytes_per_parameter_byte));
  }
  if (optimizer.framework_bytes_per_parameter_byte != Factor{}) {
    writer.key("framework_bytes_per_parameter_byte")
        .raw(factor_text(optimizer.framework_bytes_per_parameter_byte));
  }
  if (optimizer.step_ns_per_parameter_byte) {
    writer.key("step_ns_per_parameter_byte")
        .raw(factor_text(*optimizer.step_ns_per_parameter_byte));
  }
  writer.close();
}

std::optional<BatchScaling> read_batch_scaling(const Field& field) {
  if (!field.present()) return std::nullopt;
  const std::optional<std::size_t> choice = read_choice(field, {"proportional", "floor"});
  if (!choice) return std::nullopt;
  return *choice == 0 ? BatchScaling::Proportional : BatchScaling::Floor;
}

/// Whether a layer or a variant has a single measurement on some kind of device.
template <class Measured>
bool is_measured_once(const Measured& measured) {
  return measured.measurements.size() == 1 ||
         std::any_of(measured.other_times.begin(), measured.other_times.end(),
                     [](const DeviceTimes& times) { return times.measurements.size() == 1; });
}

/// Records a violation if the batch scaling is missing although a layer has a single measurement,
/// which does not determine the times of other batch sizes.
void check_batch_scaling(const Field& field, const std::vector<Layer>& layers) {
  if (field.present()) return;
  const auto single = std::find_if(layers.begin(), layers.end(), is_measured_once<Layer>);
  if (single == layers.end()) return;
  field.refuse(fmt::format("\"proportional\" or \"floor\", as layer {} has a single measurement",
                           quoted(single->name)));
}

/// Records violations in what variants need of the rest of a profile: a single measurement, which
/// does not determine the times of other batch sizes, needs a batch scaling; and the layers
/// themselves are those of one device.
void check_variants(const Field& scaling, const Field& degree, const ModelProfile& profile) {
  const auto has = [&](const auto& is_so) {
    return std::any_of(profile.layers.begin(), profile.layers.end(), [&](const Layer& layer) {
      return std::any_of(layer.variants.begin(), layer.variants.end(), is_so);
    });
  };
  const bool is_single = has(is_measured_once<LayerVariant>);
  if (!scaling.present() && is_single) {
    scaling.refuse("\"proportional\" or \"floor\", as a variant has a single measurement");
  }
  if (profile.tensor_parallel != 1 && has([](const LayerVariant&) { return true; })) {
    degree.refuse("1, as layers have variants");
  }
}

SampleWork read_sample(const Field& field) {
  ObjectReader object(field);
  SampleWork sample;
  sample.tokens = required_integer(object.field("tokens"), {1, kMaxCount});
  sample.gflop = required_integer(object.field("gflop"), {1, kMaxCount});
  sample.peak_gflop_per_second =
      required_integer(object.field("peak_gflop_per_second"), {1, kMaxCount});
  object.finish();
  return sample;
}

std::vector<DividedBlocks> read_blocks(const Field& field) {
  std::vector<DividedBlocks> blocks;
  const ArrayReader array(field, "an array of blocks");
  for (std::size_t i = 0; i < array.size(); ++i) {
    ObjectReader object(array.at(i));
    DividedBlocks& block = blocks.emplace_back();
    block.attention_heads = required_integer(object.field("attention_heads"), {1, kMaxCount});
    block.key_value_heads = required_integer(object.field("key_value_heads"), {1, kMaxCount});
    block.experts = optional_integer(object.field("experts"), {1, kMaxCount}, 0);
    object.finish();
  }
  return blocks;
}

std::string read_precision(const Field& field) {
  const std::vector<std::string_view> names(std::begin(kNumberFormats), std::end(kNumberFormats));
  const std::optional<std::size_t> choice = read_choice(field, names);
  return choice ? std::string(names[*choice]) : std::string();
}

void write_sample(JsonWriter& writer, const SampleWork& sample) {
  writer.open_object(JsonWriter::Layout::Line);
  writer.key("tokens").integer(sample.tokens);
  writer.key("gflop").integer(sample.gflop);
  writer.key("peak_gflop_per_second").integer(sample.peak_gflop_per_second);
  writer.close();
}

void write_blocks(JsonWriter& writer, const std::vector<DividedBlocks>& blocks) {
  writer.open_array(JsonWriter::Layout::Lines);
  for (const DividedBlocks& block : blocks) {
    writer.open_object(JsonWriter::Layout::Line);
    writer.key("attention_heads").integer(block.attention_heads);
    writer.key("key_value_heads").integer(block.key_value_heads);
    if (block.experts > 0) writer.key("experts").integer(block.experts);
    writer.close();
  }
  writer.close();
}

/// Reads the name of the profiled device, which is empty if the device is unknown.
std::string read_device(const Field& field) {
  const JsonValue* value = field.value_of_kind(JsonValue::Kind::Text);
  if (value != nullptr && value->text.empty()) return "";
  return read_name(field).value_or("");
}

}  // namespace

ModelProfile read_profile(const Field& field, Measurements measurements) {
  ObjectReader object(field);
  ModelProfile profile;
  if (!check_schema(object, "dapple-profile/1")) return profile;
  profile.name = read_name(object.field("name")).value_or("");
  profile.source = read_text(object.field("source")).value_or("");
  if (const Field notes = object.field("notes"); notes.present()) profile.notes = read_texts(notes);
  if (const Field warnings = object.field("warnings"); warnings.present())
    profile.warnings = read_texts(warnings);
  if (const Field batch = object.field("global_batch_size"); batch.present())
    profile.global_batch_size = read_integer(batch, kSampleRange);
  if (const Field sample = object.field("sample"); sample.present()) {
    profile.sample = read_sample(sample);
  }
  if (const Field blocks = object.field("blocks"); blocks.present()) {
    profile.blocks = read_blocks(blocks);
  }
  if (const Field precision = object.field("precision"); precision.present()) {
    profile.precision = read_precision(precision);
  }
  if (const Field error = object.field("calibration_error"); error.present()) {
    profile.calibration_error = read_factor(error, {});
  }
  const Field device = object.field("device");
  profile.device = read_device(device);
  const Field degree = object.field("tensor_parallel");
  if (degree.present())
    profile.tensor_parallel = read_integer(degree, {1, kMaxTensorParallel}).value_or(1);
  const Field batch_scaling = object.field("batch_scaling");
  profile.batch_scaling = read_batch_scaling(batch_scaling);
  profile.optimizer = read_optimizer(object.field("optimizer"));
  ProfileLayers layers = read_layers(object.field("layers"), measurements);
  profile.layers = std::move(layers.layers);
  profile.ties = std::move(layers.ties);
  profile.other_devices = std::move(layers.other_devices);
  if (std::find(profile.other_devices.begin(), profile.other_devices.end(), profile.device) !=
      profile.other_devices.end()) {
    device.refuse("a kind of device that is not among the other_times of layers");
  } else if (profile.device.empty() && !profile.other_devices.empty()) {
    device.refuse("the kind of device of the layers' own times, as they have times on others");
  }
  check_batch_scaling(batch_scaling, profile.layers);
  check_variants(batch_scaling, degree, profile);
  object.refuse_reserved({"slices", "frozen_prefix", "fused_jobs"});
  object.finish();
  return profile;
}

void write_profile(JsonWriter& writer, const ModelProfile& profile) {
  writer.open_object(JsonWriter::Layout::Lines);
  writer.key("schema").text("dapple-profile/1");
  writer.key("name").text(profile.name);
  writer.key("source").text(profile.source);
  if (!profile.notes.empty()) writer.key("notes").texts(profile.notes);
  if (!profile.warnings.empty()) writer.key("warnings").texts(profile.warnings);
  if (profile.global_batch_size)
    writer.key("global_batch_size").integer(*profile.global_batch_size);
  if (profile.sample) write_sample(writer.key("sample"), *profile.sample);
  if (!profile.blocks.empty()) write_blocks(writer.key("blocks"), profile.blocks);
  if (!profile.precision.empty()) writer.key("precision").text(profile.precision);
  if (profile.calibration_error) {
    writer.key("calibration_error").raw(factor_text(*profile.calibration_error));
  }
  writer.key("device").text(profile.device);
  if (profile.tensor_parallel != 1) writer.key("tensor_parallel").integer(profile.tensor_parallel);
  if (profile.batch_scaling) {
    writer.key("batch_scaling")
        .text(*profile.batch_scaling == BatchScaling::Proportional ? "proportional" : "floor");
  }
  write_optimizer(writer.key("optimizer"), profile.optimizer);
  write_layers(writer.key("layers"), profile);
  writer.close();
}

ModelProfile read_profile(std::string_view text, const std::string& source_name) {
  return read_document<ModelProfile>(text, source_name,
                                     [](const Field& field) { return read_profile(field); });
}

std::string write_profile(const ModelProfile& profile) {
  JsonWriter writer;
  write_profile(writer, profile);
  return writer.finish();
}

}  // namespace dapple::io
