#include "dapple/exec/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "dapple/core/error.h"
#include "named_tensors.h"

namespace dapple {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "dapple-checkpoint/1";
constexpr const char* kMetadata = "__metadata__";
constexpr std::size_t kLengthSize = 8;

constexpr std::int64_t kMostSteps = 1'000'000'000'000'000;
constexpr float kAnything = std::numeric_limits<float>::max();
constexpr float kBelowOne = 1.0F - std::numeric_limits<float>::epsilon() / 2;

/// The optimizer's numbers with their keys in the file.
struct Setting {
  const char* key;
  float nn::OptimizerSettings::*value;
  float most;
};
constexpr Setting kSettings[] = {
    {"learning_rate", &nn::OptimizerSettings::learning_rate, kAnything},
    {"momentum", &nn::OptimizerSettings::momentum, kBelowOne},
    {"beta1", &nn::OptimizerSettings::beta1, kBelowOne},
    {"beta2", &nn::OptimizerSettings::beta2, kBelowOne},
    {"epsilon", &nn::OptimizerSettings::epsilon, kAnything},
    {"weight_decay", &nn::OptimizerSettings::weight_decay, kAnything}};

Json metadata_of(const Checkpoint& checkpoint) {
  Json metadata;
  metadata["format"] = kFormat;
  metadata["steps"] = std::to_string(checkpoint.steps);
  metadata["seed"] = std::to_string(checkpoint.seed);
  metadata["optimizer"] = nn::to_string(checkpoint.optimizer.kind);
  for (const Setting& setting : kSettings) {
    metadata[setting.key] = fmt::format("{}", checkpoint.optimizer.*setting.value);
  }
  return metadata;
}

/// Reads one file; every function throws its first fault.
class Reader {
 public:
  Reader(std::string_view bytes, const std::string& source_name)
      : bytes_(bytes), source_name_(source_name) {}

  Checkpoint read() {
    const Json header = read_header();
    Checkpoint checkpoint = read_metadata(header);
    std::map<std::uint64_t, std::pair<std::uint64_t, std::string>> parts;  // begin -> end, name
    for (const auto& [name, entry] : header.items()) {
      if (name == kMetadata) continue;
      const auto [begin, end] = read_tensor(name, entry, checkpoint.tensors[name]);
      if (begin == end) continue;
      if (!parts.emplace(begin, std::pair(end, name)).second) {
        refuse(pointer_to(name) + "/data_offsets",
               "expected bytes of its own, got another tensor's");
      }
    }
    std::uint64_t covered = 0;
    for (const auto& [begin, part] : parts) {
      if (begin != covered) {
        refuse(pointer_to(part.second) + "/data_offsets",
               fmt::format("expected {} as its begin, got {}", covered, begin));
      }
      covered = part.first;
    }
    if (covered != bytes_.size()) {
      refuse(kHeader, fmt::format("expected tensors of {} bytes, as many as follow, got {}",
                                  bytes_.size(), covered));
    }
    return checkpoint;
  }

 private:
  static constexpr const char* kLengthPlace = "bytes 0 to 7";
  static constexpr const char* kHeader = "header";

  [[noreturn]] void refuse(const std::string& place, std::string message) const {
    throw Error(ErrorKind::BadInput, source_name_, {{place, std::move(message)}});
  }
  static std::string pointer_to(const std::string& name) { return "/" + pointer_step(name); }

  /// Leaves the tensors in `bytes_`.
  Json read_header() {
    std::uint64_t length = 0;
    if (bytes_.size() < kLengthSize) {
      refuse("", fmt::format("expected a safetensors file, got {} bytes in all", bytes_.size()));
    }
    std::memcpy(&length, bytes_.data(), kLengthSize);
    bytes_.remove_prefix(kLengthSize);
    if (length > bytes_.size()) {
      refuse(kLengthPlace,
             fmt::format("expected the length of a safetensors header, at most {}, got {}",
                         bytes_.size(), length));
    }
    const std::string_view text = bytes_.substr(0, static_cast<std::size_t>(length));
    bytes_.remove_prefix(text.size());
    Json header = parse_header(text);
    if (!header.is_object()) refuse(kHeader, "expected a JSON object, got something else");
    return header;
  }

  Json parse_header(std::string_view text) const {
    try {
      return Json::parse(text);
    } catch (const Json::parse_error& error) {
      // Counted from one, behind the length.
      const std::size_t place = kLengthSize + std::max<std::size_t>(error.byte, 1) - 1;
      refuse(fmt::format("byte {}", place), "expected a header in JSON, got something else");
    }
  }

  std::string metadata_text(const Json& metadata, const char* key) const {
    if (!metadata.contains(key) || !metadata[key].is_string()) {
      refuse(pointer_to(kMetadata) + "/" + key, "expected a text, got none");
    }
    return metadata[key].get<std::string>();
  }

  /// From zero up to `most`.
  template <class Number>
  Number metadata_number(const Json& metadata, const char* key, Number most) const {
    const std::string text = metadata_text(metadata, key);
    Number number{};
    const char* end = text.data() + text.size();
    const auto [stop, fault] = std::from_chars(text.data(), end, number);
    const bool is_in_range = number >= Number{} && number <= most;
    if (fault != std::errc{} || stop != end || !is_in_range) {
      refuse(pointer_to(kMetadata) + "/" + key,
             fmt::format("expected a number from 0 to {}, got \"{}\"", most, text));
    }
    return number;
  }

  Checkpoint read_metadata(const Json& header) const {
    if (!header.contains(kMetadata) || !header[kMetadata].is_object()) {
      refuse(pointer_to(kMetadata), "expected what dapple-exec train writes there, got none");
    }
    const Json& metadata = header[kMetadata];
    const std::string format = metadata_text(metadata, "format");
    if (format != kFormat) {
      refuse(pointer_to(kMetadata) + "/format",
             fmt::format("expected \"{}\", got \"{}\"", kFormat, format));
    }
    Checkpoint checkpoint;
    checkpoint.steps = metadata_number(metadata, "steps", kMostSteps);
    checkpoint.seed = metadata_number(metadata, "seed", std::numeric_limits<std::uint64_t>::max());
    const std::string kind = metadata_text(metadata, "optimizer");
    const std::optional<nn::OptimizerKind> found = optimizer_kind_of(kind);
    if (!found) {
      refuse(pointer_to(kMetadata) + "/optimizer",
             fmt::format("expected one of sgd, momentum, adam, adamw, got \"{}\"", kind));
    }
    checkpoint.optimizer.kind = *found;
    for (const Setting& setting : kSettings) {
      checkpoint.optimizer.*setting.value = metadata_number(metadata, setting.key, setting.most);
    }
    return checkpoint;
  }

  static std::optional<nn::OptimizerKind> optimizer_kind_of(const std::string& text) {
    for (const nn::OptimizerKind kind : {nn::OptimizerKind::Sgd, nn::OptimizerKind::Momentum,
                                         nn::OptimizerKind::Adam, nn::OptimizerKind::AdamW}) {
      if (nn::to_string(kind) == text) return kind;
    }
    return std::nullopt;
  }

  static bool is_list_of_numbers(const Json& entry, const char* key) {
    return entry.contains(key) && entry[key].is_array() &&
           std::all_of(entry[key].begin(), entry[key].end(),
                       [](const Json& number) { return number.is_number_unsigned(); });
  }

  /// Its bytes, [begin, end).
  std::pair<std::uint64_t, std::uint64_t> read_tensor(const std::string& name, const Json& entry,
                                                      nn::Tensor& tensor) const {
    const std::string place = pointer_to(name);
    if (!entry.is_object() || !entry.contains("dtype") || entry["dtype"] != "F32") {
      refuse(place + "/dtype", "expected \"F32\", got something else");
    }
    if (!is_list_of_numbers(entry, "shape")) {
      refuse(place + "/shape", "expected a list of whole numbers from 0, got something else");
    }
    if (!is_list_of_numbers(entry, "data_offsets") || entry["data_offsets"].size() != 2) {
      refuse(place + "/data_offsets", "expected two whole numbers from 0, got something else");
    }
    const auto begin = entry["data_offsets"][0].get<std::uint64_t>();
    const auto end = entry["data_offsets"][1].get<std::uint64_t>();
    if (begin > end || end > bytes_.size()) {
      refuse(place + "/data_offsets", fmt::format("expected a part of the {} bytes of tensors, got "
                                                  "[{}, {})",
                                                  bytes_.size(), begin, end));
    }
    const std::uint64_t floats = (end - begin) / sizeof(float);
    // Divided, not multiplied: dimensions may be anything.
    std::uint64_t left = floats;
    bool fits = (end - begin) % sizeof(float) == 0;
    for (const Json& dimension : entry["shape"]) {
      const auto count = dimension.get<std::uint64_t>();
      fits = fits && count > 0 && left % count == 0;
      if (count > 0) left /= count;
      tensor.shape.push_back(static_cast<std::int64_t>(count));
    }
    if (!fits || left != 1) {
      refuse(place + "/data_offsets",
             fmt::format("expected 4 bytes for each number of its shape, got {}", end - begin));
    }
    tensor.values.resize(static_cast<std::size_t>(floats));
    std::memcpy(tensor.values.data(), bytes_.data() + begin, static_cast<std::size_t>(end - begin));
    return {begin, end};
  }

  std::string_view bytes_;
  const std::string& source_name_;
};

std::string text_of(const nn::Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// Shapes of all tensors of the model and the optimizer, by name.
std::map<std::string, nn::Shape> expected_shapes(const std::vector<nn::ModelLayer>& layers,
                                                 nn::OptimizerKind optimizer) {
  std::map<std::string, nn::Shape> shapes;
  for (const nn::ModelLayer& layer : layers) {
    for (const nn::ParameterSpec& parameter : layer.own_parameters()) {
      const std::string name = layer.name + "." + parameter.name;
      shapes[name] = parameter.shape;
      for (std::int64_t k = 0; k < nn::state_count(optimizer); ++k) {
        shapes[moment_name(name, k)] = parameter.shape;
      }
    }
  }
  return shapes;
}

}  // namespace

std::string write_checkpoint(const Checkpoint& checkpoint) {
  Json header;
  header[kMetadata] = metadata_of(checkpoint);
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : checkpoint.tensors) {
    const std::uint64_t end = offset + tensor.values.size() * sizeof(float);
    header[name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  // Tensors begin at a multiple of 8, as readers that map the file like it.
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t length = text.size();
  std::string bytes(kLengthSize, '\0');
  std::memcpy(bytes.data(), &length, kLengthSize);
  bytes.reserve(kLengthSize + text.size() + static_cast<std::size_t>(offset));
  bytes += text;
  for (const auto& [name, tensor] : checkpoint.tensors) {
    bytes.append(reinterpret_cast<const char*>(tensor.values.data()),
                 tensor.values.size() * sizeof(float));
  }
  return bytes;
}

Checkpoint read_checkpoint(std::string_view bytes, const std::string& source_name) {
  return Reader(bytes, source_name).read();
}

std::optional<Violation> restoring_fault(const Checkpoint& checkpoint,
                                         const std::vector<nn::ModelLayer>& layers,
                                         nn::OptimizerKind optimizer) {
  const nn::OptimizerKind own = checkpoint.optimizer.kind;
  if (nn::state_count(own) != nn::state_count(optimizer)) {
    return Violation{fmt::format("/{}/optimizer", kMetadata),
                     fmt::format("expected {}, which is to go on, got {}, which keeps other state",
                                 nn::to_string(optimizer), nn::to_string(own))};
  }
  const std::map<std::string, nn::Shape> shapes = expected_shapes(layers, optimizer);
  std::vector<Violation> faults;
  for (const auto& [name, shape] : shapes) {
    const auto found = checkpoint.tensors.find(name);
    if (found == checkpoint.tensors.end()) {
      faults.push_back({"/" + pointer_step(name),
                        fmt::format("expected a tensor of shape {}, got none", text_of(shape))});
    } else if (found->second.shape != shape) {
      faults.push_back(
          {"/" + pointer_step(name),
           fmt::format("expected shape {}, got {}", text_of(shape), text_of(found->second.shape))});
    }
  }
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (shapes.count(name) > 0) continue;
    faults.push_back({"/" + pointer_step(name),
                      fmt::format("expected no such tensor, as neither the model nor {} has it",
                                  nn::to_string(optimizer))});
  }
  if (faults.empty()) return std::nullopt;
  Violation& first = faults.front();
  if (faults.size() > 1) {
    first.message += fmt::format("; {} more differ{}: a checkpoint of another model?",
                                 faults.size() - 1, faults.size() == 2 ? "s" : "");
  }
  return std::move(first);
}

}  // namespace dapple
