#include "dapple/io/gpus/gpus_document.h"

#include <fmt/format.h>

#include <set>
#include <string>

#include "dapple/core/characters.h"
#include "dapple/io/json/json_reader.h"
#include "io/gpus/shipped.h"
#include "io/json/json_writer.h"
#include "io/json/number_text.h"
#include "io/units/units.h"

namespace dapple::io {
namespace {

using estimate::Calibration;
using estimate::Framework;
using estimate::Gpu;
using estimate::GpuTable;

constexpr FactorRange kFraction{.least = {1}, .most = kOne};

Calibration read_calibration(const Field& field) {
  ObjectReader object(field);
  Calibration calibration;
  calibration.name = read_name(object.field("name")).value_or("");
  if (const Field gpu = object.field("gpu"); gpu.present()) {
    calibration.gpu = read_name(gpu).value_or("");
  }
  calibration.matrix = read_factor(object.field("matrix"), kFraction).value_or(kOne);
  calibration.attention = read_factor(object.field("attention"), kFraction).value_or(kOne);
  calibration.memory = read_factor(object.field("memory"), kFraction).value_or(kOne);
  if (const Field floor = object.field("launch_floor"); floor.present()) {
    calibration.launch_floor = read_duration(floor).value_or(Duration{});
  }
  if (const Field floor = object.field("collective_floor"); floor.present()) {
    calibration.collective_floor = read_duration(floor).value_or(Duration{});
  }
  calibration.source = read_text(object.field("source")).value_or("");
  if (const Field runs = object.field("fitted_runs"); runs.present()) {
    calibration.fitted_runs = read_texts(runs);
  }
  if (const Field constants = object.field("fitted_constants"); constants.present()) {
    calibration.fitted_constants = read_texts(constants);
  }
  if (const Field error = object.field("left_out_error"); error.present()) {
    calibration.left_out_error = read_factor(error, {});
  }
  object.finish();
  return calibration;
}

Framework read_framework(const Field& field) {
  constexpr std::int64_t kMostBytesOfParameter = 64;
  ObjectReader object(field);
  Framework framework;
  framework.name = read_name(object.field("name")).value_or("");
  const auto read_flag = [&](const char* key, bool& flag) {
    const Field keeps = object.field(key);
    if (keeps.present()) flag = read_boolean(keeps).value_or(false);
  };
  read_flag("keeps_gathered_inputs", framework.keeps_gathered_inputs);
  read_flag("keeps_activated_gates", framework.keeps_activated_gates);
  read_flag("keeps_core_output_twice", framework.keeps_core_output_twice);
  if (const Field bytes = object.field("bytes_per_parameter"); bytes.present()) {
    framework.bytes_per_parameter =
        read_integer(bytes, {.least = 0, .most = kMostBytesOfParameter}).value_or(0);
  }
  // Warnings of profiles repeat it.
  constexpr std::size_t kLongestSource = 1'000;
  const Field source = object.field("source");
  framework.source = read_text(source).value_or("");
  if (framework.source.size() > kLongestSource) {
    source.refuse(fmt::format("a text of at most {} characters", kLongestSource));
  }
  object.finish();
  return framework;
}

Gpu read_gpu(const Field& field) {
  ObjectReader object(field);
  Gpu gpu;
  gpu.name = read_name(object.field("name")).value_or("");
  if (const Field also = object.field("also"); also.present()) gpu.other_names = read_texts(also);
  if (const Field own = object.field("calibration"); own.present()) {
    gpu.calibration = read_name(own).value_or("");
  }
  gpu.memory = read_size(object.field("memory"), {1}).value_or(Bytes{1});
  gpu.memory_bandwidth = read_bandwidth(object.field("memory_bandwidth")).value_or(Bandwidth{1});
  const Field peak = object.field("peak");
  ObjectReader peaks(peak);
  bool has_peak = false;
  for (const estimate::Precision precision : estimate::kPrecisions) {
    const Field rate = peaks.field(to_string(precision));
    if (!rate.present()) continue;
    has_peak = true;
    gpu.peaks[static_cast<std::size_t>(precision)] = read_rate(rate);
  }
  if (const Field rate = peaks.field("fp8"); rate.present()) gpu.fp8_peak = read_rate(rate);
  peaks.finish();
  if (peaks.valid() && !has_peak) peak.refuse("the rate of one precision or more");
  gpu.source = read_text(object.field("source")).value_or("");
  object.finish();
  return gpu;
}

/// Returns the names of the items, of which no two may have the same.
template <class Named>
std::set<std::string> own_names(const Field& field, const char* what,
                                const std::vector<Named>& items) {
  std::set<std::string> names;
  for (const Named& item : items) {
    if (names.insert(item.name).second) continue;
    field.add(fmt::format("expected {} with names of their own, got {} twice", what,
                          printable(item.name)));
  }
  return names;
}

void check_names(const Field& field, const GpuTable& table, const GpuTable& others) {
  std::set<std::string> calibrations = own_names(field, "calibrations", table.calibrations);
  own_names(field, "frameworks", table.frameworks);
  for (const Calibration& calibration : others.calibrations) calibrations.insert(calibration.name);
  for (const Gpu& gpu : table.gpus) {
    if (!gpu.calibration.empty() && calibrations.count(gpu.calibration) == 0) {
      field.add(fmt::format("expected as calibration of {} one of the file's, got {}",
                            printable(gpu.name), printable(gpu.calibration)));
    }
    std::vector<std::string> names = gpu.other_names;
    names.push_back(gpu.name);
    for (const std::string& name : names) {
      if (table.find(name) == &gpu) continue;
      field.add(
          fmt::format("expected GPUs with names of their own, got {} twice", printable(name)));
    }
  }
}

/// Returns the items of a list that may be missing.
template <class Item>
std::vector<Item> read_list(const Field& field, Item (*read)(const Field&)) {
  std::vector<Item> items;
  if (!field.present()) return items;
  const ArrayReader array(field, "an array");
  for (std::size_t i = 0; i < array.size(); ++i) items.push_back(read(array.at(i)));
  return items;
}

/// Reads a table whose GPUs may name calibrations of `others` too.
GpuTable read_table(const Field& field, const GpuTable& others) {
  ObjectReader object(field);
  GpuTable table;
  if (!check_schema(object, "dapple-gpus/1")) return table;
  table.source = optional_text(object.field("source"));
  table.calibrations = read_list(object.field("calibrations"), read_calibration);
  table.frameworks = read_list(object.field("frameworks"), read_framework);
  table.gpus = read_list(object.field("gpus"), read_gpu);
  object.finish();
  check_names(field, table, others);
  return table;
}

void write_calibration(JsonWriter& writer, const Calibration& calibration) {
  writer.open_object(JsonWriter::Layout::Lines);
  writer.key("name").text(calibration.name);
  if (!calibration.gpu.empty()) writer.key("gpu").text(calibration.gpu);
  writer.key("matrix").raw(factor_text(calibration.matrix));
  writer.key("attention").raw(factor_text(calibration.attention));
  writer.key("memory").raw(factor_text(calibration.memory));
  writer.key("launch_floor").text(duration_text(calibration.launch_floor));
  writer.key("collective_floor").text(duration_text(calibration.collective_floor));
  writer.key("source").text(calibration.source);
  if (!calibration.fitted_runs.empty()) writer.key("fitted_runs").texts(calibration.fitted_runs);
  if (!calibration.fitted_constants.empty()) {
    writer.key("fitted_constants").texts(calibration.fitted_constants);
  }
  if (calibration.left_out_error) {
    writer.key("left_out_error").raw(factor_text(*calibration.left_out_error));
  }
  writer.close();
}

void write_framework(JsonWriter& writer, const Framework& framework) {
  writer.open_object(JsonWriter::Layout::Lines);
  writer.key("name").text(framework.name);
  if (framework.keeps_gathered_inputs) writer.key("keeps_gathered_inputs").boolean(true);
  if (framework.keeps_activated_gates) writer.key("keeps_activated_gates").boolean(true);
  if (framework.keeps_core_output_twice) writer.key("keeps_core_output_twice").boolean(true);
  if (framework.bytes_per_parameter != 0) {
    writer.key("bytes_per_parameter").integer(framework.bytes_per_parameter);
  }
  writer.key("source").text(framework.source);
  writer.close();
}

void write_gpu(JsonWriter& writer, const Gpu& gpu) {
  writer.open_object(JsonWriter::Layout::Lines);
  writer.key("name").text(gpu.name);
  if (!gpu.other_names.empty()) writer.key("also").texts(gpu.other_names);
  if (!gpu.calibration.empty()) writer.key("calibration").text(gpu.calibration);
  writer.key("memory").text(size_text(gpu.memory));
  writer.key("memory_bandwidth").text(bandwidth_text(gpu.memory_bandwidth));
  writer.key("peak").open_object(JsonWriter::Layout::Line);
  const auto write_rate = [&](std::string_view format, const std::optional<std::int64_t>& rate) {
    if (rate) writer.key(std::string(format)).text(rate_text(*rate));
  };
  for (const estimate::Precision precision : estimate::kPrecisions) {
    write_rate(to_string(precision), gpu.peak(precision));
  }
  write_rate("fp8", gpu.fp8_peak);
  writer.close();
  writer.key("source").text(gpu.source);
  writer.close();
}

}  // namespace

std::string write_gpus(const GpuTable& table) {
  JsonWriter writer;
  writer.open_object(JsonWriter::Layout::Lines);
  writer.key("schema").text("dapple-gpus/1");
  if (!table.source.empty()) writer.key("source").text(table.source);
  writer.key("calibrations").open_array(JsonWriter::Layout::Lines);
  for (const Calibration& calibration : table.calibrations) write_calibration(writer, calibration);
  writer.close();
  if (!table.frameworks.empty()) {
    writer.key("frameworks").open_array(JsonWriter::Layout::Lines);
    for (const Framework& framework : table.frameworks) write_framework(writer, framework);
    writer.close();
  }
  writer.key("gpus").open_array(JsonWriter::Layout::Lines);
  for (const Gpu& gpu : table.gpus) write_gpu(writer, gpu);
  writer.close();
  writer.close();
  return writer.finish();
}

GpuTable read_gpus(std::string_view text, const std::string& source_name) {
  const GpuTable shipped = shipped_gpus();
  GpuTable table = read_document<GpuTable>(
      text, source_name, [&](const Field& root) { return read_table(root, shipped); });
  table.add(shipped);
  return table;
}

GpuTable shipped_gpus() {
  return read_document<GpuTable>(shipped::kGpus, "the shipped figures of GPUs",
                                 [](const Field& root) { return read_table(root, {}); });
}

}  // namespace dapple::io
