#include "dapple/io/gpus/gpus_document.h"

#include <fmt/format.h>

#include <set>
#include <string>

#include "dapple/core/characters.h"
#include "dapple/io/json/json_reader.h"
#include "io/documents/units.h"
#include "io/gpus/shipped.h"

namespace dapple::io {
namespace {

using estimate::Calibration;
using estimate::Gpu;
using estimate::GpuTable;

constexpr FactorRange kFraction{.least = {1}, .most = kOne};

Calibration read_calibration(const Field& field) {
  ObjectReader object(field);
  Calibration calibration;
  calibration.name = read_name(object.field("name")).value_or("");
  calibration.matrix = read_factor(object.field("matrix"), kFraction).value_or(kOne);
  calibration.memory = read_factor(object.field("memory"), kFraction).value_or(kOne);
  if (const Field floor = object.field("launch_floor"); floor.present()) {
    calibration.launch_floor = read_duration(floor).value_or(Duration{});
  }
  if (const Field floor = object.field("collective_floor"); floor.present()) {
    calibration.collective_floor = read_duration(floor).value_or(Duration{});
  }
  calibration.source = read_text(object.field("source")).value_or("");
  object.finish();
  return calibration;
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
  // Stated for people: no estimate uses it yet.
  if (const Field rate = peaks.field("fp8"); rate.present()) read_rate(rate);
  peaks.finish();
  if (peaks.valid() && !has_peak) peak.refuse("the rate of one precision or more");
  gpu.source = read_text(object.field("source")).value_or("");
  object.finish();
  return gpu;
}

void check_names(const Field& field, const GpuTable& table) {
  std::set<std::string> calibrations;
  for (const Calibration& calibration : table.calibrations) {
    if (!calibrations.insert(calibration.name).second) {
      field.add(fmt::format("expected calibrations with names of their own, got {} twice",
                            printable(calibration.name)));
    }
  }
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

GpuTable read_table(const Field& field) {
  ObjectReader object(field);
  GpuTable table;
  if (!check_schema(object, "dapple-gpus/1")) return table;
  optional_text(object.field("source"));
  const ArrayReader calibrations(object.field("calibrations"), "an array of calibrations");
  for (std::size_t i = 0; i < calibrations.size(); ++i) {
    table.calibrations.push_back(read_calibration(calibrations.at(i)));
  }
  if (calibrations.valid() && calibrations.size() == 0) {
    object.field("calibrations").refuse("one calibration or more");
  }
  const ArrayReader gpus(object.field("gpus"), "an array of GPUs");
  for (std::size_t i = 0; i < gpus.size(); ++i) table.gpus.push_back(read_gpu(gpus.at(i)));
  object.finish();
  check_names(field, table);
  return table;
}

}  // namespace

GpuTable read_gpus(std::string_view text, const std::string& source_name) {
  return read_document<GpuTable>(text, source_name,
                                 [](const Field& root) { return read_table(root); });
}

GpuTable shipped_gpus() {
  return read_gpus(shipped::kGpus, "the shipped figures of GPUs");
}

}  // namespace dapple::io
