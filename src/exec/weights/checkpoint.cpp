#include "dapple/exec/weights/checkpoint.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/exec/message/fingerprint.h"
#include "exec/train/named_tensors.h"
#include "exec/weights/safetensors.h"

namespace dapple::exec {
namespace {

constexpr const char* kFormat = "dapple-checkpoint/2";
/// The older format, which has no protection against damage beyond that of safetensors.
constexpr const char* kFormatWithoutDigest = "dapple-checkpoint/1";
constexpr const char* kDigest = "digest";
/// The placeholder of the digest's sixteen digits while the digest is computed.
constexpr std::string_view kNoDigits = "0000000000000000";

constexpr float kAnything = std::numeric_limits<float>::max();
constexpr float kBelowOne = 1.0F - std::numeric_limits<float>::epsilon() / 2;

/// A numeric setting of the optimizer with its key in the file.
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

std::vector<std::pair<std::string, std::string>> metadata_of(const Checkpoint& checkpoint) {
  std::vector<std::pair<std::string, std::string>> metadata{
      {"format", kFormat},
      {kDigest, std::string(kNoDigits)},
      {"steps", std::to_string(checkpoint.steps)},
      {"seed", std::to_string(checkpoint.seed)},
      {"optimizer", std::string(nn::to_string(checkpoint.optimizer.kind))}};
  for (const Setting& setting : kSettings) {
    metadata.emplace_back(setting.key, fmt::format("{}", checkpoint.optimizer.*setting.value));
  }
  return metadata;
}

/// Returns the position of the digest's digits in the file; npos if they are not there in the form
/// in which the writer writes them.
std::size_t place_of_digits(std::string_view bytes, std::string_view digits) {
  const std::string before = fmt::format("\"{}\":\"", kDigest);
  const std::size_t found = bytes.find(before + std::string(digits) + '"');
  return found == std::string_view::npos ? found : found + before.size();
}

/// Computes the digest of the whole file with zeros in place of the digits at `place`.
std::string digest_of(std::string_view bytes, std::size_t place) {
  Fingerprint sum;
  for (const std::string_view part :
       {bytes.substr(0, place), kNoDigits, bytes.substr(place + kNoDigits.size())}) {
    sum.add(std::as_bytes(std::span(part)));
  }
  return fmt::format("{:016x}", sum.value());
}

/// Reads the metadata of a file; every function throws the first fault it finds.
class Metadata {
 public:
  Metadata(const std::map<std::string, std::string>& texts, const std::string& source_name)
      : texts_(texts), source_name_(source_name) {}

  /// Returns the checkpoint without its tensors. `bytes` are those of the whole file.
  Checkpoint read(std::string_view bytes) const {
    if (texts_.empty()) {
      refuse_file(source_name_, place_of_tensor(kMetadata),
                  "expected what dapple-exec train writes there, got none");
    }
    Checkpoint checkpoint;
    checkpoint.is_checked = is_checked_format();
    if (checkpoint.is_checked) check_digest(bytes);
    checkpoint.steps = number("steps", kMostTrainingSteps);
    checkpoint.seed = number("seed", std::numeric_limits<std::uint64_t>::max());
    const std::string& kind = text("optimizer");
    const std::optional<nn::OptimizerKind> found = nn::optimizer_of(kind);
    if (!found) {
      refuse_file(source_name_, place_of_text("optimizer"),
                  fmt::format("expected one of sgd, momentum, adam, adamw, got \"{}\"", kind));
    }
    checkpoint.optimizer.kind = *found;
    for (const Setting& setting : kSettings) {
      checkpoint.optimizer.*setting.value = number(setting.key, setting.most);
    }
    return checkpoint;
  }

 private:
  /// Whether the format has a digest. Throws if it is unknown, or if a file of the older format has
  /// a digest.
  bool is_checked_format() const {
    const std::string& format = text("format");
    if (format == kFormat) return true;
    if (format == kFormatWithoutDigest && texts_.count(kDigest) == 0) return false;
    refuse_file(source_name_, place_of_text("format"),
                fmt::format("expected \"{}\", got \"{}\"", kFormat, format));
  }

  void check_digest(std::string_view bytes) const {
    const std::string& digits = text(kDigest);
    const std::size_t place =
        digits.size() == kNoDigits.size() ? place_of_digits(bytes, digits) : std::string_view::npos;
    if (place == std::string_view::npos) {
      refuse_file(source_name_, place_of_text(kDigest),
                  fmt::format("expected {} digits as dapple-exec train writes them, got \"{}\"",
                              kNoDigits.size(), digits));
    }
    const std::string own = digest_of(bytes, place);
    if (own == digits) return;
    refuse_file(source_name_, place_of_text(kDigest),
                fmt::format("expected {}, that of the file's bytes, got {}: the file is not as it "
                            "was written",
                            own, digits));
  }

  const std::string& text(const char* key) const {
    const auto found = texts_.find(key);
    if (found == texts_.end()) {
      refuse_file(source_name_, place_of_text(key), "expected a text, got none");
    }
    return found->second;
  }

  /// Returns a number from zero to `most`.
  template <class Number>
  Number number(const char* key, Number most) const {
    const std::string& digits = text(key);
    Number number{};
    const char* end = digits.data() + digits.size();
    const auto [stop, fault] = std::from_chars(digits.data(), end, number);
    const bool is_in_range = number >= Number{} && number <= most;
    if (fault != std::errc{} || stop != end || !is_in_range) {
      refuse_file(source_name_, place_of_text(key),
                  fmt::format("expected a number from 0 to {}, got \"{}\"", most, digits));
    }
    return number;
  }

  const std::map<std::string, std::string>& texts_;
  const std::string& source_name_;
};

/// Returns the shapes of all tensors of the model and the optimizer, by name.
std::map<std::string, nn::Shape> expected_shapes(const std::vector<nn::ModelLayer>& layers,
                                                 nn::OptimizerKind optimizer) {
  const auto states = static_cast<std::size_t>(nn::state_count(optimizer));
  std::map<std::string, nn::Shape> shapes;
  for (const nn::ModelLayer& layer : layers) {
    for (const nn::ParameterSpec& parameter : layer.own_parameters()) {
      const std::string name = layer.name + "." + parameter.name;
      shapes[name] = parameter.shape;
      for (std::size_t k = 0; k < states; ++k) { shapes[moment_name(name, k)] = parameter.shape; }
    }
  }
  return shapes;
}

}  // namespace

void add_first_state(nn::OptimizerKind optimizer, NamedTensors& tensors) {
  const auto states = static_cast<std::size_t>(nn::state_count(optimizer));
  NamedTensors state;
  for (const auto& [name, tensor] : tensors) {
    for (std::size_t k = 0; k < states; ++k) {
      state[moment_name(name, k)] = nn::zeros(tensor.shape);
    }
  }
  tensors.merge(state);
}

std::string write_checkpoint(const Checkpoint& checkpoint) {
  std::string bytes = write_safetensors(metadata_of(checkpoint), checkpoint.tensors);
  const std::size_t place = place_of_digits(bytes, kNoDigits);
  check(place != std::string::npos, "a checkpoint has no place for its digest");
  bytes.replace(place, kNoDigits.size(), digest_of(bytes, place));
  return bytes;
}

Checkpoint read_checkpoint(std::string_view bytes, const std::string& source_name) {
  const StoredTensors stored = read_safetensors(bytes, source_name);
  Checkpoint checkpoint = Metadata(stored.metadata, source_name).read(bytes);
  for (const auto& [name, tensor] : stored.tensors) {
    if (tensor.kind != "F32") {
      refuse_file(source_name, place_of_tensor(name) + "/dtype",
                  fmt::format("expected \"F32\", got \"{}\"", tensor.kind));
    }
    checkpoint.tensors[name] = values_of(name, tensor, source_name);
  }
  return checkpoint;
}

std::optional<Violation> restoring_fault(const Checkpoint& checkpoint,
                                         const std::vector<nn::ModelLayer>& layers,
                                         nn::OptimizerKind optimizer) {
  const nn::OptimizerKind own = checkpoint.optimizer.kind;
  if (nn::state_count(own) != nn::state_count(optimizer)) {
    return Violation{
        place_of_text("optimizer"),
        fmt::format("expected {}, with which training continues, got {}, whose state is another",
                    nn::to_string(optimizer), nn::to_string(own))};
  }
  const std::map<std::string, nn::Shape> shapes = expected_shapes(layers, optimizer);
  std::vector<Violation> faults;
  for (const auto& [name, shape] : shapes) {
    const auto found = checkpoint.tensors.find(name);
    if (found == checkpoint.tensors.end()) {
      faults.push_back(tensor_fault(name, shape, std::nullopt));
    } else if (found->second.shape != shape) {
      faults.push_back(tensor_fault(name, shape, found->second.shape));
    }
  }
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (shapes.count(name) > 0) continue;
    faults.push_back({place_of_tensor(name),
                      fmt::format("expected no such tensor, as neither the model nor {} has it",
                                  nn::to_string(optimizer))});
  }
  return first_of(std::move(faults), "a checkpoint of another model?");
}

}  // namespace dapple::exec
