#include "interop/profiles/sailor_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
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

/// Measurements by kind of GPU, micro-batch and degree; a second one of a triple is a fault.
using KnownTimes = std::set<std::tuple<std::string, std::int64_t, std::int64_t>>;

Error fault(ErrorKind kind, const std::string& source_name, std::string place,
            std::string message) {
  return Error{kind, source_name, {{std::move(place), std::move(message)}}};
}

template <class Names>
std::string listed(const Names& names) {
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

/// Throws unless some measurements have the wanted degree.
void check_degrees(const std::set<std::int64_t>& measured, std::int64_t degree,
                   const std::string& source_name, std::string place) {
  if (measured.count(degree) > 0) return;
  throw fault(ErrorKind::BadInput, source_name, std::move(place),
              fmt::format("expected measurements at tensor-parallel degree {}, got {} "
                          "(--tensor-parallel takes another)",
                          degree, listed(measured)));
}

/// Reads the document that has everything.
class WholeDocumentReader {
 public:
  WholeDocumentReader(const std::string& source_name, std::int64_t degree)
      : source_name_(source_name), degree_(degree) {}

  SailorDocument run(std::string_view text) {
    SailorDocument document = io::read_document<SailorDocument>(
        text, source_name_, [this](const Field& field) { return read(field); });
    check_degrees(degrees_, degree_, source_name_, "/times");
    return document;
  }

 private:
  SailorDocument read(const Field& field);
  void read_kinds(const Field& field, SailorDocument& document);
  void read_sizes(const Field& field, SailorDocument& document);
  void read_times(const Field& field, SailorDocument& document);

  template <class Quantity>
  std::vector<Quantity> read_column(const Field& field, std::int64_t scale,
                                    std::string_view unit) const;

  const std::string& source_name_;
  std::int64_t degree_;
  std::size_t layer_count_ = 0;
  std::set<std::int64_t> degrees_;
};

/// Reads an array with a figure for each layer.
template <class Quantity>
std::vector<Quantity> WholeDocumentReader::read_column(const Field& field, std::int64_t scale,
                                                       std::string_view unit) const {
  const ArrayReader array(field, "an array with a figure for each layer");
  std::vector<Quantity> column;
  if (array.valid() && array.size() != layer_count_) {
    field.add(
        fmt::format("expected {} figures, one for each layer, got {}", layer_count_, array.size()));
  }
  for (std::size_t i = 0; i < std::min(array.size(), layer_count_); ++i) {
    column.push_back({read_scaled(array.at(i), scale, unit).value_or(0)});
  }
  column.resize(layer_count_);
  return column;
}

void WholeDocumentReader::read_kinds(const Field& field, SailorDocument& document) {
  const ArrayReader array(field, "an array with the kind of each layer");
  if (!array.valid()) return;
  if (array.size() == 0 || array.size() > kMaxLayers) {
    field.add(fmt::format("expected 1 to {} layers, got {}", kMaxLayers, array.size()));
    return;
  }
  for (std::size_t i = 0; i < array.size(); ++i) {
    document.layer_kinds.push_back(
        plain_name(io::read_name(array.at(i)).value_or("layer"), "layer"));
  }
  layer_count_ = document.layer_kinds.size();
}

void WholeDocumentReader::read_sizes(const Field& field, SailorDocument& document) {
  ObjectReader degrees(field);
  if (!degrees.valid()) return;
  const std::string degree = fmt::format("{}", degree_);
  const Field wanted = degrees.field(degree);
  if (!wanted.present()) {
    field.add(fmt::format("expected sizes for tensor-parallel degree {}, got none", degree_));
    return;
  }
  ObjectReader sizes(wanted);
  if (!sizes.valid()) return;
  const auto read = [&](std::string_view key) {
    return read_column<Bytes>(sizes.field(key), 1, "bytes");
  };
  document.sizes = {.parameters = read("parameter_bytes"),
                    .output = read("activation_output_bytes"),
                    .input = read("activation_input_bytes"),
                    .stored = read("activation_stored_bytes")};
}

void WholeDocumentReader::read_times(const Field& field, SailorDocument& document) {
  const ArrayReader array(field, "an array of measurements");
  KnownTimes known;
  for (std::size_t i = 0; i < array.size(); ++i) {
    ObjectReader row(array.at(i));
    if (!row.valid()) continue;
    SailorTimes times;
    times.device = io::read_name(row.field("gpu_type")).value_or("");
    times.batch = io::required_integer(row.field("micro_batch_size"), io::kSampleRange);
    const std::int64_t degree = io::required_integer(row.field("tp"), {1, kMaxTensorParallel});
    times.forward = read_column<Duration>(row.field("forward_s"), kNanosecondsPerSecond, "seconds");
    times.backward =
        read_column<Duration>(row.field("backward_s"), kNanosecondsPerSecond, "seconds");
    if (!known.insert({times.device, times.batch, degree}).second) {
      array.at(i).add(
          fmt::format("expected one measurement of {} at micro-batch {} and degree {}, got another",
                      shown(times.device), times.batch, degree));
    }
    degrees_.insert(degree);
    document.devices.insert(times.device);
    if (degree == degree_) document.times.push_back(std::move(times));
  }
}

SailorDocument WholeDocumentReader::read(const Field& field) {
  ObjectReader object(field);
  SailorDocument document;
  if (!object.valid()) return document;
  if (const Field name = object.field("model"); name.present()) {
    document.name = io::read_name(name).value_or("");
  }
  read_kinds(object.field("layer_kinds"), document);
  if (layer_count_ == 0) return document;
  read_sizes(object.field("sizes_per_tp"), document);
  read_times(object.field("times"), document);
  return document;
}

/// An object whose keys are whole numbers, as degrees, micro-batches and layers are in Sailor's own
/// files.
class NumberedObject {
 public:
  struct Member {
    std::int64_t number = 0;
    Field field;
  };

  /// Takes the members whose keys are whole numbers from `least` on. Any other key, and a number
  /// that comes twice, is a fault.
  NumberedObject(const Field& field, std::int64_t least, std::string_view what);
  NumberedObject(const NumberedObject&) = delete;
  NumberedObject& operator=(const NumberedObject&) = delete;

  /// By rising number.
  const std::vector<Member>& members() const { return members_; }

 private:
  // The fields refer to it.
  ObjectReader object_;
  std::vector<Member> members_;
};

NumberedObject::NumberedObject(const Field& field, std::int64_t least, std::string_view what)
    : object_(field) {
  if (!object_.valid()) return;
  const std::vector<Field> fields = object_.members();
  object_.finish();
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const auto number = parse_count(field.value().keys[i]);
    if (!number || *number < least) {
      fields[i].add(fmt::format("expected the number of a {} as key, from {} on, got another key",
                                what, least));
      continue;
    }
    members_.push_back({*number, fields[i]});
  }
  std::stable_sort(members_.begin(), members_.end(),
                   [](const Member& a, const Member& b) { return a.number < b.number; });
  for (std::size_t i = 1; i < members_.size(); ++i) {
    if (members_[i].number != members_[i - 1].number) continue;
    members_[i].field.add(
        fmt::format("expected each {} once, got {} again", what, members_[i].number));
  }
}

/// An object with a member for each of the layers 0, 1 and so on.
class LayersObject {
 public:
  explicit LayersObject(const Field& field) : object_(field, 0, "layer") {
    if (object_.members().size() > kMaxLayers) {
      field.add(
          fmt::format("expected at most {} layers, got {}", kMaxLayers, object_.members().size()));
      return;
    }
    for (const NumberedObject::Member& member : object_.members()) {
      if (member.number != static_cast<std::int64_t>(layers_.size())) {
        field.add(fmt::format("expected the layers 0, 1 and so on, got {} in place of {}",
                              member.number, layers_.size()));
        return;
      }
      layers_.push_back(member.field);
    }
  }

  const std::vector<Field>& layers() const { return layers_; }

 private:
  NumberedObject object_;
  std::vector<Field> layers_;
};

/// Records keys that occur more than once; others than those that are read are for others.
void refuse_repeated(ObjectReader& object) {
  object.members();
  object.finish();
}

/// What Sailor writes for the seconds of a measurement that gave no number.
constexpr std::int64_t kNoMeasurement = std::int64_t{1} << 30;

/// Reads the two files of Sailor's planner.
class PlannerFilesReader {
 public:
  PlannerFilesReader(const NamedText& times, const NamedText& sizes, std::int64_t degree)
      : times_(times), sizes_(sizes), degree_(degree) {}

  SailorDocument run(const std::optional<std::string>& model);

 private:
  std::set<std::string> models_in(const NamedText& file) const;
  void choose_model(const std::optional<std::string>& model);
  SailorSizes read_sizes(const Field& root);
  Bytes read_size(ObjectReader& layer, std::string_view bytes_key, std::string_view floats_key);
  void read_times(const Field& root);
  void add_measurement(const std::string& device, std::int64_t batch, const Field& field);
  bool read_layers(const Field& field, SailorTimes& times);

  const NamedText& times_;
  const NamedText& sizes_;
  std::int64_t degree_;
  SailorDocument document_;
  std::set<std::int64_t> degrees_;
  bool counts_in_floats_ = false;
  // Kinds with measurements that stand for none.
  std::map<std::string, std::int64_t> failed_;
};

std::set<std::string> PlannerFilesReader::models_in(const NamedText& file) const {
  const io::JsonValue json = io::parse_json(file.text, file.name);
  if (json.kind != io::JsonValue::Kind::Object) {
    throw fault(ErrorKind::BadInput, file.name, "", "expected an object, got another value");
  }
  return {json.keys.begin(), json.keys.end()};
}

void PlannerFilesReader::choose_model(const std::optional<std::string>& model) {
  const std::set<std::string> with_times = models_in(times_);
  const std::set<std::string> with_sizes = models_in(sizes_);
  std::set<std::string> common;
  std::set_intersection(with_times.begin(), with_times.end(), with_sizes.begin(), with_sizes.end(),
                        std::inserter(common, common.end()));
  std::set<std::string> shown_names;
  for (const std::string& name : common) shown_names.insert(shown(name));
  if (model && common.count(*model) > 0) {
    document_.name = *model;
  } else if (!model && common.size() == 1) {
    document_.name = *common.begin();
  } else if (common.empty()) {
    throw fault(ErrorKind::BadInput, sizes_.name, "",
                fmt::format("expected a model of {}, got none of them", times_.name));
  } else {
    throw fault(ErrorKind::Usage, times_.name, "--of-model",
                fmt::format("expected one of the models, {}, got {}", listed(shown_names),
                            model ? "'" + shown(*model) + "'" : "nothing"));
  }
}

Bytes PlannerFilesReader::read_size(ObjectReader& layer, std::string_view bytes_key,
                                    std::string_view floats_key) {
  const Field bytes = layer.field(bytes_key);
  const Field floats = layer.field(floats_key);
  if (bytes.present() || !floats.present()) return {read_scaled(bytes, 1, "bytes").value_or(0)};
  constexpr std::int64_t kBytesPerFloat = 4;
  counts_in_floats_ = true;
  return {read_scaled(floats, kBytesPerFloat, "numbers").value_or(0)};
}

SailorSizes PlannerFilesReader::read_sizes(const Field& root) {
  ObjectReader models(root);
  SailorSizes sizes;
  if (!models.valid()) return sizes;
  refuse_repeated(models);
  std::set<std::int64_t> degrees;
  const Field model = models.field(document_.name);
  const NumberedObject of_degrees(model, 1, "tensor-parallel degree");
  for (const NumberedObject::Member& degree : of_degrees.members()) {
    degrees.insert(degree.number);
    if (degree.number != degree_) continue;
    const LayersObject layers(degree.field);
    for (const Field& field : layers.layers()) {
      ObjectReader layer(field);
      if (!layer.valid()) continue;
      sizes.parameters.push_back(read_size(layer, "params_bytes", "params_floats"));
      sizes.output.push_back(read_size(layer, "act_output_bytes", "act_output_floats"));
      sizes.input.push_back(read_size(layer, "act_input_bytes", "act_input_floats"));
      sizes.stored.push_back(read_size(layer, "act_mem_bytes", "act_mem_floats"));
    }
    if (sizes.parameters.empty()) degree.field.add("expected at least one layer, got none");
  }
  if (model.value().kind == io::JsonValue::Kind::Object && degrees.count(degree_) == 0) {
    model.add(fmt::format("expected sizes for tensor-parallel degree {}, got {}", degree_,
                          listed(degrees)));
  }
  return sizes;
}

/// Reads the times of all layers; returns false if one of them stands for none.
bool PlannerFilesReader::read_layers(const Field& field, SailorTimes& times) {
  bool succeeded = true;
  const std::size_t layers = document_.sizes.parameters.size();
  const LayersObject object(field);
  if (object.layers().size() != layers) {
    field.add(fmt::format("expected {} layers, as there are sizes of, got {}", layers,
                          object.layers().size()));
    return succeeded;
  }
  for (const Field& layer : object.layers()) {
    const ArrayReader figures(layer, "an array of seconds: forward, backward, step");
    if (figures.valid() && figures.size() < 2) {
      layer.add(fmt::format("expected seconds of forward and backward, got {} figure{}",
                            figures.size(), figures.size() == 1 ? "" : "s"));
    }
    if (figures.size() < 2) continue;
    const auto read = [&](std::size_t i) {
      const io::JsonValue& value = figures.at(i).value();
      const bool is_none =
          value.kind == io::JsonValue::Kind::Integer && value.integer == kNoMeasurement;
      succeeded = succeeded && !is_none;
      if (is_none) return Duration{};
      return Duration{read_scaled(figures.at(i), kNanosecondsPerSecond, "seconds").value_or(0)};
    };
    times.forward.push_back(read(0));
    times.backward.push_back(read(1));
  }
  return succeeded;
}

void PlannerFilesReader::read_times(const Field& root) {
  ObjectReader models(root);
  if (!models.valid()) return;
  refuse_repeated(models);
  const Field model = models.field(document_.name);
  ObjectReader kinds(model);
  if (!kinds.valid()) return;
  const std::vector<Field> fields = kinds.members();
  kinds.finish();
  for (std::size_t k = 0; k < fields.size(); ++k) {
    const std::string& device = model.value().keys[k];
    if (!io::is_name(fields[k], device)) continue;
    document_.devices.insert(device);
    const NumberedObject batches(fields[k], 1, "micro-batch size");
    for (const NumberedObject::Member& batch : batches.members()) {
      const NumberedObject degrees(batch.field, 1, "tensor-parallel degree");
      for (const NumberedObject::Member& degree : degrees.members()) {
        degrees_.insert(degree.number);
        if (degree.number == degree_) add_measurement(device, batch.number, degree.field);
      }
    }
  }
}

/// Adds a measurement, unless a time stands for none.
void PlannerFilesReader::add_measurement(const std::string& device, std::int64_t batch,
                                         const Field& field) {
  SailorTimes times{.device = device, .batch = batch, .forward = {}, .backward = {}};
  if (read_layers(field, times)) {
    document_.times.push_back(std::move(times));
  } else {
    ++failed_[device];
  }
}

SailorDocument PlannerFilesReader::run(const std::optional<std::string>& model) {
  choose_model(model);
  document_.sizes = io::read_document<SailorSizes>(
      sizes_.text, sizes_.name, [this](const Field& root) { return read_sizes(root); });
  document_.layer_kinds.assign(document_.sizes.parameters.size(), "layer");
  io::read_document<int>(times_.text, times_.name, [this](const Field& root) {
    read_times(root);
    return 0;
  });
  check_degrees(degrees_, degree_, times_.name, "");
  if (document_.times.empty()) {
    throw fault(
        ErrorKind::BadInput, times_.name, "",
        fmt::format("expected measurements of {}, got none that succeeded", shown(document_.name)));
  }
  for (const auto& [device, count] : failed_) {
    document_.warnings.push_back(
        fmt::format("{} measurement{} on {} left out: Sailor's figures there stand for none", count,
                    count == 1 ? "" : "s", shown(device)));
  }
  if (counts_in_floats_) {
    document_.warnings.push_back(
        "sizes are stated in numbers, not in bytes: each number counts as 4 bytes");
  }
  return std::move(document_);
}

}  // namespace

SailorDocument read_sailor_document(std::string_view text, const std::string& source_name,
                                    std::int64_t degree) {
  return WholeDocumentReader(source_name, degree).run(text);
}

SailorDocument read_sailor_files(const NamedText& times, const NamedText& sizes,
                                 std::int64_t degree, const std::optional<std::string>& model) {
  return PlannerFilesReader(times, sizes, degree).run(model);
}

}  // namespace dapple::interop
