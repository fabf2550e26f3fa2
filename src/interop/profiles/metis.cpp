#include "interop/profiles/metis.h"

#include <fmt/format.h>

#include <algorithm>
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

using io::ArrayReader;
using io::Field;
using io::ObjectReader;

constexpr ProfileNeeds kNeeds{.file = "a Metis profile",
                              .stash = Need::Optional,
                              .backward_ratio = Need::Required,
                              .output = Need::Required};
// The longest optimizer step in nanoseconds per parameter byte, as in our own profiles.
constexpr Factor kMostStep{1'000'000'000'000};

/// The contents of one file.
struct MetisRun {
  std::string source;
  std::string device;
  std::int64_t degree = 1;
  std::int64_t batch = 1;
  std::string model;
  std::vector<std::int64_t> parameters;
  // The forward and backward time of each layer together, in nanoseconds.
  std::vector<std::int64_t> times;
  // The whole memory in bytes as the file lists it, which should be one figure per layer; may be
  // empty.
  std::vector<std::int64_t> memory;
  std::optional<std::int64_t> optimizer_step;
};

/// Reads the device, degree and batch size from the file name: "A100", 1 and 4 from
/// "DeviceType.A100_tp1_bs4.json". Throws Error(BadInput) for other names.
void read_file_name(const std::string& name, MetisRun& run) {
  std::string_view rest = std::string_view(name).substr(name.rfind('/') + 1);
  constexpr std::string_view kPrefix = "DeviceType.";
  constexpr std::string_view kEnding = ".json";
  const std::size_t degree = rest.rfind("_tp");
  const std::size_t batch = rest.rfind("_bs");
  const std::size_t ending = rest.rfind(kEnding);
  const bool is_whole = begins_with(rest, kPrefix) && degree != std::string_view::npos &&
                        batch != std::string_view::npos && ending != std::string_view::npos &&
                        kPrefix.size() < degree && degree < batch && batch < ending &&
                        ending + kEnding.size() == rest.size();
  if (is_whole) {
    const auto degree_number = parse_count(rest.substr(degree + 3, batch - degree - 3));
    const auto batch_number = parse_count(rest.substr(batch + 3, ending - batch - 3));
    if (degree_number && batch_number && *degree_number >= 1 && *batch_number >= 1) {
      run.device = rest.substr(kPrefix.size(), degree - kPrefix.size());
      run.degree = *degree_number;
      run.batch = *batch_number;
      return;
    }
  }
  throw Error{ErrorKind::BadInput,
              name,
              {{"",
                "expected a name like DeviceType.A100_tp1_bs4.json, which says device, degree "
                "and batch size, got another"}}};
}

std::vector<std::int64_t> read_column(const Field& field, std::int64_t scale,
                                      std::string_view unit) {
  const ArrayReader array(field, "an array with a figure for each layer");
  std::vector<std::int64_t> column;
  if (array.size() > kMaxLayers) {
    field.add(fmt::format("expected at most {} layers, got {}", kMaxLayers, array.size()));
    return column;
  }
  for (std::size_t i = 0; i < array.size(); ++i) {
    column.push_back(read_scaled(array.at(i), scale, unit).value_or(0));
  }
  return column;
}

MetisRun read_run(const Field& field, MetisRun run) {
  ObjectReader document(field);
  if (!document.valid()) return run;
  ObjectReader model(document.field("model"));
  if (const Field name = model.field("model_name"); name.present()) {
    run.model = io::read_name(name).value_or("");
  }
  ObjectReader parameters(model.field("parameters"));
  ObjectReader times(document.field("execution_time"));
  ObjectReader memory(document.field("execution_memory"));
  const Field bytes = parameters.field("parameters_per_layer_bytes");
  const Field compute = times.field("layer_compute_total_ms");
  run.parameters = read_column(bytes, 1, "bytes");
  run.times = read_column(compute, kNanosecondsPerMillisecond, "milliseconds");
  if (const Field step = times.field("optimizer_time_ms"); step.present()) {
    run.optimizer_step = read_scaled(step, kNanosecondsPerMillisecond, "milliseconds");
  }
  if (const Field total = memory.field("layer_memory_total_mb"); total.present()) {
    run.memory = read_column(total, kMebibyte, "mebibytes");
  }
  if (run.times.empty() && field.violations()->empty()) {
    compute.add("expected at least one layer, got none");
  }
  if (run.parameters.size() != run.times.size() && field.violations()->empty()) {
    bytes.add(fmt::format("expected {} figures, one for each layer that has a time, got {}",
                          run.times.size(), run.parameters.size()));
  }
  return run;
}

class MetisImporter {
 public:
  MetisImporter(const std::vector<ForeignModelFile>& files, const ForeignProfileOptions& options)
      : options_(options), degree_(options.tensor_parallel.value_or(1)) {
    check_options(options, kNeeds, files.front().name);
    for (const ForeignModelFile& file : files) {
      MetisRun named;
      named.source = file.name;
      read_file_name(file.name, named);
      runs_.push_back(io::read_document<MetisRun>(
          file.text, file.name, [&](const Field& field) { return read_run(field, named); }));
    }
  }
  ImportedProfile run();

 private:
  void choose_runs();
  void check_runs() const;
  void choose_memory();
  std::int64_t stash_per_sample(std::size_t layer) const;
  void add_layers();
  void add_optimizer_step();
  Wide fixed_memory(std::size_t layer) const;

  const ForeignProfileOptions& options_;
  std::int64_t degree_;
  // All files; after choose_runs() those of the chosen device and degree, by ascending batch size.
  std::vector<MetisRun> runs_;
  // The runs of the smallest and the largest batch among those with a memory figure per layer.
  const MetisRun* smallest_ = nullptr;
  const MetisRun* largest_ = nullptr;
  ImportedProfile result_;
};

void MetisImporter::choose_runs() {
  const std::string source = runs_.front().source;
  std::set<std::string> devices;
  std::set<std::int64_t> degrees;
  for (const MetisRun& run : runs_) {
    degrees.insert(run.degree);
    if (run.degree == degree_) devices.insert(run.device);
  }
  if (devices.empty()) {
    throw Error{ErrorKind::BadInput,
                source,
                {{"", fmt::format("expected a file of tensor-parallel degree {}, got those of {}",
                                  degree_, fmt::join(degrees, ", "))}}};
  }
  std::string device = *devices.begin();
  if (options_.device && devices.count(*options_.device) > 0) {
    device = *options_.device;
  } else if (devices.size() > 1) {
    throw Error{ErrorKind::Usage,
                source,
                {{"--profile-device",
                  fmt::format("expected one of the kinds that were measured, {}, got {}",
                              fmt::join(devices, ", "),
                              options_.device ? "'" + shown(*options_.device) + "'" : "nothing")}}};
  }
  const std::size_t before = runs_.size();
  std::erase_if(runs_,
                [&](const MetisRun& run) { return run.degree != degree_ || run.device != device; });
  if (runs_.size() < before) {
    result_.warnings.push_back(
        fmt::format("figures are those of {} at tensor-parallel degree {}; {} other files are left "
                    "out (--profile-device and --tensor-parallel take others)",
                    device, degree_, before - runs_.size()));
  }
  std::sort(runs_.begin(), runs_.end(),
            [](const MetisRun& a, const MetisRun& b) { return a.batch < b.batch; });
  result_.profile.device = options_.device.value_or(device);
}

void MetisImporter::check_runs() const {
  const MetisRun& first = runs_.front();
  for (std::size_t i = 1; i < runs_.size(); ++i) {
    const MetisRun& run = runs_[i];
    const auto refuse = [&](const std::string& place, std::string message) {
      throw Error{ErrorKind::BadInput, run.source, {{place, std::move(message)}}};
    };
    if (run.batch == runs_[i - 1].batch) {
      refuse("", fmt::format("expected another batch size than {} has, got {} too",
                             shown(runs_[i - 1].source), run.batch));
    }
    if (run.parameters != first.parameters) {
      refuse("/model/parameters/parameters_per_layer_bytes",
             fmt::format("expected the layers of {}, got others", shown(first.source)));
    }
  }
}

void MetisImporter::choose_memory() {
  if (options_.stash) return;
  for (const MetisRun& run : runs_) {
    if (run.memory.size() == run.times.size()) {
      if (smallest_ == nullptr) smallest_ = &run;
      largest_ = &run;
    } else {
      result_.warnings.push_back(
          fmt::format("{} has {} figures of memory for {} layers: they are left out",
                      base_name(run.source), run.memory.size(), run.times.size()));
    }
  }
  if (largest_ == nullptr) {
    throw Error{ErrorKind::Usage,
                runs_.front().source,
                {{"--stash",
                  "what a layer keeps, as a multiple of its output, is required, as no file states "
                  "the memory of each layer"}}};
  }
  result_.warnings.emplace_back(
      smallest_ == largest_
          ? "what a layer keeps is taken to be all of its memory except weights, gradients and the "
            "optimizer's state; --stash says otherwise"
          : "what a layer keeps is taken to be what its memory grows by from the smallest batch to "
            "the largest; --stash says otherwise");
}

/// Returns the bytes of a layer's weights, gradients and optimizer state.
Wide MetisImporter::fixed_memory(std::size_t layer) const {
  const Optimizer& optimizer = result_.profile.optimizer;
  const Wide factor = Wide{kOne.billionths} +
                      optimizer.gradient_bytes_per_parameter_byte.billionths +
                      optimizer.state_bytes_per_parameter_byte.billionths;
  return factor * runs_.front().parameters[layer] / kOne.billionths;
}

std::int64_t MetisImporter::stash_per_sample(std::size_t layer) const {
  if (options_.stash) {
    const Wide stash = Wide{options_.output->count} * options_.stash->billionths;
    return static_cast<std::int64_t>(
        std::min<Wide>((stash + kOne.billionths - 1) / kOne.billionths, kMaxCount));
  }
  const bool grows = smallest_ != largest_;
  const Wide without = grows ? Wide{smallest_->memory[layer]} : fixed_memory(layer);
  const Wide rest = std::max<Wide>(0, largest_->memory[layer] - without);
  return divide_up(rest, largest_->batch - (grows ? smallest_->batch : 0));
}

void MetisImporter::add_layers() {
  std::vector<std::string> without_stash;
  for (std::size_t l = 0; l < runs_.front().times.size(); ++l) {
    Layer layer;
    layer.name = fmt::format("layer.{}", l);
    layer.parameters = {runs_.front().parameters[l]};
    if (l > 0) layer.inputs.push_back(index_at<LayerIndex>(l - 1));
    const std::int64_t stash = stash_per_sample(l);
    for (const MetisRun& run : runs_) {
      if (Wide{run.batch} * std::max(stash, options_.output->count) > Wide{kMaxCount}) {
        throw Error{ErrorKind::BadInput,
                    run.source,
                    {{"", fmt::format("expected at most 10^15 bytes that layer {} keeps or puts "
                                      "out, got more",
                                      l)}}};
      }
      const BothDirections times = share_out(Duration{run.times[l]}, *options_.backward_ratio);
      Measurement measurement;
      measurement.batch_size = run.batch;
      measurement.forward = times.forward;
      measurement.backward = times.backward;
      measurement.output = {run.batch * options_.output->count};
      measurement.stash = {run.batch * stash};
      layer.measurements.push_back(measurement);
    }
    if (stash == 0) without_stash.push_back(layer.name);
    warn_of_parameters(layer, fmt::format("layer {}", l), result_.warnings);
    result_.profile.layers.push_back(std::move(layer));
  }
  if (without_stash.empty() || options_.stash) return;
  result_.warnings.push_back(
      fmt::format("{} of {} layers, {} the first, keep nothing by these figures, as if any number "
                  "of micro-batches could be in flight; --stash says otherwise",
                  without_stash.size(), result_.profile.layers.size(), without_stash.front()));
}

/// Takes the optimizer's step from the run of the smallest batch, as it does not depend on the
/// batch size.
void MetisImporter::add_optimizer_step() {
  const MetisRun& run = runs_.front();
  Wide bytes = 0;
  for (const std::int64_t each : run.parameters) bytes += each;
  if (!run.optimizer_step || bytes == 0) return;
  const Wide step = Wide{*run.optimizer_step} * kOne.billionths / bytes;
  if (step > kMostStep.billionths) {
    throw Error{ErrorKind::BadInput,
                run.source,
                {{"/execution_time/optimizer_time_ms",
                  "expected at most 1000 ns for each byte of parameters, got more"}}};
  }
  result_.profile.optimizer.step_ns_per_parameter_byte = {static_cast<std::int64_t>(step)};
}

ImportedProfile MetisImporter::run() {
  result_.profile = profile_header(options_, plain_name(runs_.front().model, "model"),
                                   "imported from a Metis profile");
  choose_runs();
  check_runs();
  result_.profile.notes.push_back(
      fmt::format("Both directions' time is shared out 1 : {}; a layer puts out {} bytes a sample.",
                  show_factor(*options_.backward_ratio), options_.output->count));
  choose_memory();
  add_layers();
  add_optimizer_step();
  if (runs_.size() == 1) warn_of_scaling(options_, runs_.front().batch, result_.warnings);
  if (degree_ != 1) {
    result_.warnings.push_back(fmt::format(
        "a device is a group of {} GPUs; what they send each other is part of the measured times",
        degree_));
  }
  return std::move(result_);
}

}  // namespace

ImportedProfile import_metis(const std::vector<ForeignModelFile>& files,
                             const ForeignProfileOptions& options) {
  return MetisImporter(files, options).run();
}

bool is_metis_profile(const io::JsonValue& object) {
  return has_key(object, "model") && has_key(object, "execution_time");
}

}  // namespace dapple::interop
