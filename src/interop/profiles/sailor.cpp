#include "interop/profiles/sailor.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/profile/limits.h"
#include "interop/profiles/profile_options.h"
#include "interop/profiles/sailor_document.h"
#include "interop/text/foreign_json.h"
#include "interop/text/foreign_text.h"

namespace dapple::interop {
namespace {

constexpr ProfileNeeds kNeeds{.file = "a Sailor profile"};
constexpr ProfileNeeds kFilesNeeds{.file = "a pair of Sailor's files", .model = Need::Optional};
/// A backward that is more than this many times shorter than its forward was probably not measured.
constexpr std::int64_t kDoubtfulRatio = 10;

/// Measurements of one kind of GPU, by rising micro-batch size.
using TimesOfKind = std::vector<const SailorTimes*>;

std::int64_t degree_of(const ForeignProfileOptions& options) {
  return options.tensor_parallel.value_or(1);
}

class SailorProfile {
 public:
  SailorProfile(const SailorDocument& document, const std::string& source_name,
                const ForeignProfileOptions& options)
      : document_(document), source_name_(source_name), options_(options) {}
  ImportedProfile run();

 private:
  void find_kinds();
  void add_layers();
  std::vector<Measurement> measurements(const TimesOfKind& times, std::size_t layer) const;
  void add_sizes(Layer& layer, std::size_t number) const;
  void add_warnings();

  const SailorDocument& document_;
  const std::string& source_name_;
  const ForeignProfileOptions& options_;
  std::map<std::string, TimesOfKind> kinds_;
  // The kind whose times are those of the profile.
  std::string main_;
  ImportedProfile result_;
};

/// Sorts the measurements by kind, and chooses the profile's: that of the option, or the first by
/// name. The option may be another name for the only kind, but not that of another one in the file.
void SailorProfile::find_kinds() {
  for (const SailorTimes& times : document_.times) kinds_[times.device].push_back(&times);
  for (auto& [device, times] : kinds_) {
    std::sort(times.begin(), times.end(),
              [](const SailorTimes* a, const SailorTimes* b) { return a->batch < b->batch; });
  }
  main_ = kinds_.begin()->first;
  if (!options_.device) {
    result_.profile.device = main_;
  } else if (kinds_.count(*options_.device) > 0) {
    main_ = *options_.device;
  } else if (kinds_.size() > 1 || document_.devices.count(*options_.device) > 0) {
    std::vector<std::string> names;
    for (const auto& [device, times] : kinds_) names.push_back(shown(device));
    throw Error{
        ErrorKind::Usage,
        source_name_,
        {{"--profile-device",
          fmt::format("expected one of the kinds that were measured at tensor-parallel "
                      "degree {}, {}, got '{}'",
                      degree_of(options_), fmt::join(names, ", "), shown(*options_.device))}}};
  }
  if (kinds_.size() > kMaxOtherDevices + 1) {
    throw Error{ErrorKind::BadInput,
                source_name_,
                {{"", fmt::format("expected at most {} kinds of GPU, got {}", kMaxOtherDevices + 1,
                                  kinds_.size())}}};
  }
  for (const auto& [device, times] : kinds_) {
    if (device != main_) result_.profile.other_devices.push_back(device);
  }
}

std::vector<Measurement> SailorProfile::measurements(const TimesOfKind& times,
                                                     std::size_t layer) const {
  std::vector<Measurement> measurements;
  for (const SailorTimes* each : times) {
    Measurement& measurement = measurements.emplace_back();
    measurement.batch_size = each->batch;
    measurement.forward = each->forward[layer];
    measurement.backward = each->backward[layer];
  }
  return measurements;
}

void SailorProfile::add_sizes(Layer& layer, std::size_t number) const {
  const SailorSizes& sizes = document_.sizes;
  layer.parameters = sizes.parameters[number];
  const Bytes output = sizes.output[number];
  const Bytes kept = std::max(Bytes{}, sizes.stored[number] - output) + sizes.input[number];
  for (Measurement& measurement : layer.measurements) {
    const std::int64_t batch = measurement.batch_size;
    const Wide most = kMaxCount;
    if (Wide{batch} * std::max(kept, output).count > most) {
      throw Error{ErrorKind::BadInput,
                  source_name_,
                  {{"", fmt::format("expected at most 10^15 bytes of layer {} at micro-batch {}, "
                                    "got more",
                                    number, batch)}}};
    }
    measurement.output = batch * output;
    measurement.stash = batch * kept;
  }
}

void SailorProfile::add_layers() {
  std::map<std::string, int> uses;
  for (const std::string& kind : document_.layer_kinds) ++uses[kind];
  std::map<std::string, int> numbers;
  for (std::size_t l = 0; l < document_.layer_kinds.size(); ++l) {
    const std::string& kind = document_.layer_kinds[l];
    Layer layer;
    layer.name = uses[kind] > 1 ? fmt::format("{}.{}", kind, numbers[kind]++) : kind;
    if (l > 0) layer.inputs.push_back(index_at<LayerIndex>(l - 1));
    layer.measurements = measurements(kinds_.at(main_), l);
    add_sizes(layer, l);
    for (const std::string& other : result_.profile.other_devices) {
      layer.other_times.push_back(
          {.fixed_overhead = {}, .measurements = measurements(kinds_.at(other), l)});
    }
    warn_of_parameters(layer, fmt::format("layer {}", l), result_.warnings);
    result_.profile.layers.push_back(std::move(layer));
  }
}

void SailorProfile::add_warnings() {
  for (const Layer& layer : result_.profile.layers) {
    const Measurement& largest = layer.measurements.back();
    if (layer.parameters.count == 0 || largest.backward.ns * kDoubtfulRatio >= largest.forward.ns) {
      continue;
    }
    result_.warnings.push_back(
        fmt::format("layer {} has a backward of {} ns and a forward of {} ns: was it measured?",
                    layer.name, largest.backward.ns, largest.forward.ns));
  }
  result_.warnings.push_back(
      "the optimizer's time (update_s) is left out: it is one figure for a model of few layers, "
      "copied to each of them");
  if (result_.profile.tensor_parallel != 1) {
    result_.warnings.push_back(fmt::format(
        "a device is a group of {} GPUs; what they send each other is part of the measured times",
        result_.profile.tensor_parallel));
  }
  for (const auto& [device, times] : kinds_) {
    if (times.size() > 1) continue;
    warn_of_scaling(options_, times.front()->batch, result_.warnings);
    return;
  }
}

ImportedProfile SailorProfile::run() {
  const std::string name =
      document_.name.empty() ? model_name(source_name_) : plain_name(document_.name, "model");
  result_.profile = profile_header(options_, name, "imported from a Sailor profile");
  result_.profile.notes.push_back(
      "Stash of a layer: what its forward leaves allocated, less its output, with its input.");
  result_.warnings = document_.warnings;
  find_kinds();
  add_layers();
  add_warnings();
  return std::move(result_);
}

/// Returns the first member of an object that has members itself, or else its first, or nullptr.
const io::JsonValue* some_member(const io::JsonValue* value) {
  const bool has_members =
      value != nullptr && value->kind == io::JsonValue::Kind::Object && !value->elements.empty();
  if (!has_members) return nullptr;
  const auto full = std::find_if(value->elements.begin(), value->elements.end(),
                                 [](const auto& member) { return !member.elements.empty(); });
  return full == value->elements.end() ? &value->elements.front() : &*full;
}

bool has_numbered_members(const io::JsonValue* value) {
  return some_member(value) != nullptr && parse_count(value->keys.front()).has_value();
}

}  // namespace

bool is_sailor_profile(const io::JsonValue& object) {
  return has_key(object, "layer_kinds") && has_key(object, "times");
}

bool is_sailor_times(const io::JsonValue& object) {
  const io::JsonValue* const batches = some_member(some_member(&object));
  return has_numbered_members(batches) && has_numbered_members(some_member(batches)) &&
         has_numbered_members(some_member(some_member(batches)));
}

bool is_sailor_sizes(const io::JsonValue& object) {
  const io::JsonValue* const degrees = some_member(&object);
  const io::JsonValue* const layers = some_member(degrees);
  const io::JsonValue* const layer = some_member(layers);
  return has_numbered_members(degrees) && has_numbered_members(layers) && layer != nullptr &&
         (has_key(*layer, "act_mem_bytes") || has_key(*layer, "act_mem_floats"));
}

namespace {

enum class SailorFile { Times, Sizes, Other };

SailorFile kind_of(const ForeignModelFile& file) {
  const std::optional<io::JsonValue> object = object_in(file.text);
  if (!object) return SailorFile::Other;
  if (is_sailor_times(*object)) return SailorFile::Times;
  return is_sailor_sizes(*object) ? SailorFile::Sizes : SailorFile::Other;
}

Error refusal_of(const ForeignModelFile& file, std::string message) {
  return Error{ErrorKind::BadInput, file.name, {{"", std::move(message)}}};
}

/// Refuses one of the two files without the other.
void require_both(const ForeignModelFile& only) {
  const SailorFile kind = kind_of(only);
  if (kind == SailorFile::Times) {
    throw refusal_of(
        only,
        "expected the sizes of layers in addition to their times (Sailor's llm_info.json), "
        "got times alone, from which no memory and no transfer follows");
  }
  if (kind == SailorFile::Sizes) {
    throw refusal_of(only,
                     "expected the times of layers in addition to their sizes (Sailor's "
                     "profiles_tmp.json), got sizes alone");
  }
}

}  // namespace

ImportedProfile import_sailor(const std::vector<ForeignModelFile>& files,
                              const ForeignProfileOptions& options) {
  const ForeignModelFile& first = files.front();
  if (files.size() == 1) {
    require_both(first);
    check_options(options, kNeeds, first.name);
    return SailorProfile(read_sailor_document(first.text, first.name, degree_of(options)),
                         first.name, options)
        .run();
  }
  if (files.size() > 2) {
    throw refusal_of(files[2], fmt::format("expected two files of Sailor, got {}", files.size()));
  }
  check_options(options, kFilesNeeds, first.name);
  // A file that is like neither may be either with a fault, which its reader names.
  const SailorFile a = kind_of(first);
  const SailorFile b = kind_of(files[1]);
  if (a == b) {
    throw refusal_of(files[1],
                     "expected one file of times and one of sizes, got two of the same kind");
  }
  const bool is_in_order = a == SailorFile::Times || b == SailorFile::Sizes;
  const ForeignModelFile& times = files[is_in_order ? 0 : 1];
  const ForeignModelFile& sizes = files[is_in_order ? 1 : 0];
  return SailorProfile(read_sailor_files({times.text, times.name}, {sizes.text, sizes.name},
                                         degree_of(options), options.model),
                       times.name, options)
      .run();
}

}  // namespace dapple::interop
