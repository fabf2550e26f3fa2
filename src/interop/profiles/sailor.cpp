#include "interop/profiles/sailor.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

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

constexpr ProfileNeeds kNeeds{.file = "a Sailor profile"};
/// A backward that is more than this many times shorter than its forward was probably not measured.
constexpr std::int64_t kDoubtfulRatio = 10;

/// The times of all layers on one kind of GPU at one micro-batch size, in nanoseconds.
struct Times {
  std::string device;
  std::int64_t batch = 1;
  std::int64_t degree = 1;
  std::vector<std::int64_t> forward;
  std::vector<std::int64_t> backward;
};

/// The sizes of all layers for one sequence, in bytes.
struct Sizes {
  std::vector<std::int64_t> parameters;
  std::vector<std::int64_t> output;
  std::vector<std::int64_t> input;
  std::vector<std::int64_t> stored;
};

struct SailorDocument {
  std::string name;
  std::vector<std::string> kinds;
  // The sizes at the requested tensor-parallel degree.
  std::optional<Sizes> sizes;
  std::vector<Times> times;
};

class SailorReader {
 public:
  SailorReader(const std::string& source_name, const ForeignProfileOptions& options)
      : source_name_(source_name),
        options_(options),
        degree_(options.tensor_parallel.value_or(1)),
        degree_text_(fmt::format("{}", degree_)) {}
  ImportedProfile run(std::string_view text);

 private:
  SailorDocument read(const Field& field);
  void read_kinds(const Field& field, SailorDocument& document);
  void read_sizes(const Field& field, SailorDocument& document);
  void read_times(const Field& field, SailorDocument& document);
  std::vector<std::int64_t> read_column(const Field& field, std::int64_t scale,
                                        std::string_view unit) const;
  std::string choose_device(const std::vector<Times>& times) const;
  std::vector<Times> chosen_times(std::vector<Times> times);
  void add_layers(const SailorDocument& document, const std::vector<Times>& times);
  void warn_of_times(const std::vector<Times>& times);

  const std::string& source_name_;
  const ForeignProfileOptions& options_;
  std::int64_t degree_;
  std::string degree_text_;
  std::size_t layer_count_ = 0;
  ImportedProfile result_;
};

/// Reads an array with a figure for each layer.
std::vector<std::int64_t> SailorReader::read_column(const Field& field, std::int64_t scale,
                                                    std::string_view unit) const {
  const ArrayReader array(field, "an array with a figure for each layer");
  std::vector<std::int64_t> column;
  if (array.valid() && array.size() != layer_count_) {
    field.add(
        fmt::format("expected {} figures, one for each layer, got {}", layer_count_, array.size()));
  }
  for (std::size_t i = 0; i < std::min(array.size(), layer_count_); ++i) {
    column.push_back(read_scaled(array.at(i), scale, unit).value_or(0));
  }
  column.resize(layer_count_);
  return column;
}

void SailorReader::read_kinds(const Field& field, SailorDocument& document) {
  const ArrayReader array(field, "an array with the kind of each layer");
  if (!array.valid()) return;
  if (array.size() == 0 || array.size() > kMaxLayers) {
    field.add(fmt::format("expected 1 to {} layers, got {}", kMaxLayers, array.size()));
    return;
  }
  for (std::size_t i = 0; i < array.size(); ++i) {
    document.kinds.push_back(plain_name(io::read_name(array.at(i)).value_or("layer"), "layer"));
  }
  layer_count_ = document.kinds.size();
}

void SailorReader::read_sizes(const Field& field, SailorDocument& document) {
  ObjectReader degrees(field);
  if (!degrees.valid()) return;
  const Field wanted = degrees.field(degree_text_);
  if (!wanted.present()) {
    field.add(fmt::format("expected sizes for tensor-parallel degree {}, got none", degree_));
    return;
  }
  ObjectReader sizes(wanted);
  if (!sizes.valid()) return;
  const auto read = [&](std::string_view key) { return read_column(sizes.field(key), 1, "bytes"); };
  document.sizes = Sizes{.parameters = read("parameter_bytes"),
                         .output = read("activation_output_bytes"),
                         .input = read("activation_input_bytes"),
                         .stored = read("activation_stored_bytes")};
}

void SailorReader::read_times(const Field& field, SailorDocument& document) {
  const ArrayReader array(field, "an array of measurements");
  std::set<std::tuple<std::string, std::int64_t, std::int64_t>> known;
  for (std::size_t i = 0; i < array.size(); ++i) {
    ObjectReader row(array.at(i));
    if (!row.valid()) continue;
    Times times;
    times.device = io::read_name(row.field("gpu_type")).value_or("");
    times.batch = io::required_integer(row.field("micro_batch_size"), io::kSampleRange);
    times.degree = io::required_integer(row.field("tp"), {1, 1024});
    times.forward = read_column(row.field("forward_s"), kNanosecondsPerSecond, "seconds");
    times.backward = read_column(row.field("backward_s"), kNanosecondsPerSecond, "seconds");
    if (!known.insert({times.device, times.batch, times.degree}).second) {
      array.at(i).add(
          fmt::format("expected one measurement of {} at micro-batch {} and degree {}, got another",
                      shown(times.device), times.batch, times.degree));
    }
    document.times.push_back(std::move(times));
  }
}

SailorDocument SailorReader::read(const Field& field) {
  ObjectReader object(field);
  SailorDocument document;
  if (!object.valid()) return document;
  const bool has_times_only =
      !object.field("times").present() && !field.value().keys.empty() &&
      std::all_of(field.value().keys.begin(), field.value().keys.end(),
                  [](const std::string& key) { return parse_count(key).has_value(); });
  if (has_times_only) {
    field.add(
        "expected the sizes of layers (\"sizes_per_tp\") beside their times (\"times\"), got times "
        "by micro-batch, degree and layer alone, from which no memory and no transfer follows");
    return document;
  }
  if (const Field name = object.field("model"); name.present()) {
    document.name = io::read_name(name).value_or("");
  }
  read_kinds(object.field("layer_kinds"), document);
  if (layer_count_ == 0) return document;
  read_sizes(object.field("sizes_per_tp"), document);
  read_times(object.field("times"), document);
  return document;
}

std::string SailorReader::choose_device(const std::vector<Times>& times) const {
  std::set<std::string> devices;
  for (const Times& each : times) {
    if (each.degree == degree_) devices.insert(each.device);
  }
  if (devices.empty()) {
    throw Error{ErrorKind::BadInput,
                source_name_,
                {{"/times", fmt::format("expected measurements at tensor-parallel degree {}, got "
                                        "none",
                                        degree_)}}};
  }
  if (options_.device && devices.count(*options_.device) > 0) return *options_.device;
  if (devices.size() == 1) return *devices.begin();
  std::string names;
  for (const std::string& device : devices) names += (names.empty() ? "" : ", ") + shown(device);
  throw Error{ErrorKind::Usage,
              source_name_,
              {{"--profile-device",
                fmt::format("expected one of the kinds that were measured, {}, got {}", names,
                            options_.device ? "'" + shown(*options_.device) + "'" : "nothing")}}};
}

std::vector<Times> SailorReader::chosen_times(std::vector<Times> times) {
  const std::string device = choose_device(times);
  if (!options_.device) result_.profile.device = device;
  std::set<std::string> others;
  for (const Times& each : times) {
    if (each.device != device) others.insert(each.device);
  }
  std::erase_if(times,
                [&](const Times& each) { return each.device != device || each.degree != degree_; });
  std::sort(times.begin(), times.end(),
            [](const Times& a, const Times& b) { return a.batch < b.batch; });
  std::string names;
  for (const std::string& other : others) names += (names.empty() ? "" : ", ") + shown(other);
  if (!names.empty()) {
    result_.warnings.push_back(
        fmt::format("times are those of {}; those of {} are left out (--profile-device takes "
                    "others)",
                    shown(device), names));
  }
  return times;
}

void SailorReader::add_layers(const SailorDocument& document, const std::vector<Times>& times) {
  const Sizes& sizes = *document.sizes;
  std::map<std::string, int> uses;
  for (const std::string& kind : document.kinds) ++uses[kind];
  std::map<std::string, int> numbers;
  for (std::size_t l = 0; l < layer_count_; ++l) {
    const std::string& kind = document.kinds[l];
    Layer layer;
    layer.name = uses[kind] > 1 ? fmt::format("{}.{}", kind, numbers[kind]++) : kind;
    layer.parameters = {sizes.parameters[l]};
    if (l > 0) layer.inputs.push_back(index_at<LayerIndex>(l - 1));
    const std::int64_t kept =
        std::max<std::int64_t>(0, sizes.stored[l] - sizes.output[l]) + sizes.input[l];
    for (const Times& each : times) {
      const Wide most = kMaxCount;
      if (Wide{each.batch} * std::max(kept, sizes.output[l]) > most) {
        throw Error{ErrorKind::BadInput,
                    source_name_,
                    {{"/sizes_per_tp", fmt::format("expected at most 10^15 bytes of layer {} at "
                                                   "micro-batch {}, got more",
                                                   l, each.batch)}}};
      }
      Measurement measurement;
      measurement.batch_size = each.batch;
      measurement.forward = {each.forward[l]};
      measurement.backward = {each.backward[l]};
      measurement.output = {each.batch * sizes.output[l]};
      measurement.stash = {each.batch * kept};
      layer.measurements.push_back(measurement);
    }
    warn_of_parameters(layer, fmt::format("layer {}", l), result_.warnings);
    result_.profile.layers.push_back(std::move(layer));
  }
}

void SailorReader::warn_of_times(const std::vector<Times>& times) {
  for (const Layer& layer : result_.profile.layers) {
    const Measurement& largest = layer.measurements.back();
    if (layer.parameters.count == 0 || largest.backward.ns * kDoubtfulRatio >= largest.forward.ns) {
      continue;
    }
    result_.warnings.push_back(
        fmt::format("layer {} has a backward of {} ns beside a forward of {} ns: was it measured?",
                    layer.name, largest.backward.ns, largest.forward.ns));
  }
  result_.warnings.push_back(
      "the optimizer's time (update_s) is left out: it is one figure for a model of few layers, "
      "copied to each of them");
  if (degree_ != 1) {
    result_.warnings.push_back(fmt::format(
        "a device is a group of {} GPUs; what they send each other is part of the measured times",
        degree_));
  }
  if (times.size() == 1) warn_of_scaling(options_, times.front().batch, result_.warnings);
}

ImportedProfile SailorReader::run(std::string_view text) {
  check_options(options_, kNeeds, source_name_);
  SailorDocument document = io::read_document<SailorDocument>(
      text, source_name_, [this](const Field& field) { return read(field); });
  const std::string name =
      document.name.empty() ? model_name(source_name_) : plain_name(document.name, "model");
  result_.profile = profile_header(options_, name, "imported from a Sailor profile");
  result_.profile.notes.push_back(
      "Stash of a layer: what its forward leaves allocated, less its output, with its input.");
  const std::vector<Times> times = chosen_times(std::move(document.times));
  add_layers(document, times);
  warn_of_times(times);
  return std::move(result_);
}

}  // namespace

ImportedProfile import_sailor(std::string_view text, const std::string& source_name,
                              const ForeignProfileOptions& options) {
  return SailorReader(source_name, options).run(text);
}

bool is_sailor_profile(const io::JsonValue& object) {
  return has_key(object, "layer_kinds") && has_key(object, "times");
}

}  // namespace dapple::interop
