#include "interop/profiles/profile_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/profile/doubts.h"
#include "dapple/profile/limits.h"
#include "interop/graphs/transformer_blocks.h"
#include "interop/text/foreign_text.h"

namespace dapple::interop {
namespace {

struct KnownOptimizer {
  std::string_view name;
  std::int64_t state_bytes_per_parameter_byte;
};
// Momentum and RMSProp keep one value per parameter, Adam two.
constexpr std::array<KnownOptimizer, 4> kOptimizers{
    {{"sgd", 0}, {"momentum", 1}, {"rmsprop", 1}, {"adam", 2}}};

constexpr std::int64_t kMostDegree = 1024;
constexpr Factor kMostRatio{1'000'000'000'000};

const KnownOptimizer* find_optimizer(const std::string& name) {
  const auto* found = std::find_if(kOptimizers.begin(), kOptimizers.end(),
                                   [&](const KnownOptimizer& known) { return known.name == name; });
  return found == kOptimizers.end() ? nullptr : found;
}

/// Collects the faults of the options for one kind of file.
class OptionCheck {
 public:
  explicit OptionCheck(std::string_view file) : file_(file) {}

  /// Returns whether the option has a value that the format uses. Records a fault if the format
  /// requires a value that is missing, or has no use for one that is given.
  template <class Value>
  bool is_usable(const char* option, Need need, const std::optional<Value>& value,
                 std::string_view what) {
    if (value && need == Need::Useless) {
      add(option,
          fmt::format("expected none for {}, which has no use for {}, got one", file_, what));
    } else if (!value && need == Need::Required) {
      add(option, fmt::format("expected {}, which {} does not state", what, file_));
    }
    return value && need != Need::Useless;
  }

  void count(const char* option, Need need, const std::optional<std::int64_t>& value,
             std::string_view what, std::int64_t most) {
    if (!is_usable(option, need, value, what) || (*value >= 1 && *value <= most)) return;
    add(option, fmt::format("expected {}, from 1 to {}, got {}", what, most, *value));
  }

  void add(std::string option, std::string message) {
    violations_.push_back({std::move(option), std::move(message)});
  }

  void finish(const std::string& source_name) {
    if (!violations_.empty()) {
      throw Error(ErrorKind::Usage, source_name, std::move(violations_));
    }
  }

 private:
  std::string_view file_;
  std::vector<Violation> violations_;
};

}  // namespace

void check_options(const ForeignProfileOptions& options, const ProfileNeeds& needs,
                   const std::string& source_name) {
  OptionCheck check(needs.file);
  check.count("--profile-batch", needs.profile_batch, options.profile_batch,
              "the batch size that was profiled", kMostSamples);
  constexpr const char* kNames = "sgd, momentum, rmsprop or adam";
  if (check.is_usable("--optimizer", Need::Required, options.optimizer, kNames) &&
      find_optimizer(*options.optimizer) == nullptr) {
    check.add("--optimizer",
              fmt::format("expected {}, got '{}'", kNames, shown(*options.optimizer)));
  }
  check.count("--global-batch", needs.global_batch, options.global_batch, "the global batch size",
              kMostSamples);
  check.is_usable("--profile-device", needs.device, options.device,
                  "the kind of device that was measured");
  if (check.is_usable("--stash", needs.stash, options.stash, "a factor on a layer's output") &&
      options.stash->billionths < 0) {
    check.add("--stash", "expected a factor of 0 or more, got a negative one");
  }
  check.count("--tensor-parallel", needs.tensor_parallel, options.tensor_parallel,
              "the tensor-parallel degree", kMostDegree);
  check.is_usable("--tensor-parallel", needs.every_degree,
                  options.every_degree ? std::optional(true) : std::nullopt,
                  "the figures of all degrees together");
  if (check.is_usable("--backward-ratio", needs.backward_ratio, options.backward_ratio,
                      "the backward's time as a multiple of the forward's") &&
      (options.backward_ratio->billionths <= 0 || *options.backward_ratio > kMostRatio)) {
    check.add("--backward-ratio", fmt::format("expected a factor above 0 and up to 1000, got {}",
                                              show_factor(*options.backward_ratio)));
  }
  if (check.is_usable("--output-size", needs.output, options.output,
                      "the size of a layer's output for one sample") &&
      (options.output->count < 0 || options.output->count > kMaxCount)) {
    check.add("--output-size", "expected 0 to 10^15 bytes, got another size");
  }
  check.is_usable("--of-model", needs.model, options.model, "the model of several");
  check.is_usable("--time-unit", needs.time_unit, options.time_unit, "the unit of times");
  check.count("--layers", needs.layers, options.layers, "the number of layers of each kind",
              kMaxLayers);
  check.finish(source_name);
}

ModelProfile profile_header(const ForeignProfileOptions& options, std::string name,
                            std::string source) {
  ModelProfile profile;
  profile.name = std::move(name);
  profile.source = std::move(source);
  profile.global_batch_size = options.global_batch;
  profile.device = options.device.value_or("");
  profile.tensor_parallel = options.tensor_parallel.value_or(1);
  profile.batch_scaling = options.batch_scaling.value_or(BatchScaling::Proportional);
  const KnownOptimizer& optimizer = *find_optimizer(*options.optimizer);
  profile.optimizer.name = optimizer.name;
  profile.optimizer.state_bytes_per_parameter_byte = {optimizer.state_bytes_per_parameter_byte *
                                                      kOne.billionths};
  return profile;
}

std::string plain_name(std::string_view name, std::string_view otherwise) {
  constexpr std::size_t kLongest = 100;
  std::string plain;
  for (const char c : name.substr(0, kLongest)) {
    const bool keep = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '-' || c == '_';
    plain += keep ? c : '_';
  }
  return plain.empty() ? std::string(otherwise) : plain;
}

std::string model_name(const std::string& source_name) {
  std::string path = source_name;
  const auto take_last = [&path] {
    const std::size_t slash = path.find_last_of('/');
    std::string last = slash == std::string::npos ? path : path.substr(slash + 1);
    path.resize(slash == std::string::npos ? 0 : slash);
    return last;
  };
  std::string name = take_last();
  name = name.substr(0, name.find_last_of('.'));
  if (name == "graph") {
    const std::string folder = take_last();
    if (!folder.empty() && folder != "." && folder != "..") name = folder;
  }
  return name == "-" ? "model" : plain_name(name, "model");
}

std::string show_factor(Factor factor) {
  std::string text = fmt::format("{}.{:09}", factor.billionths / kOne.billionths,
                                 factor.billionths % kOne.billionths);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

TimeUnit unit_of_times(const ForeignProfileOptions& options, std::string_view usual) {
  return options.time_unit ? *options.time_unit : time_unit(usual).value();
}

namespace {

/// Whether the layer is named like the output layer of a language model, or has at least half as
/// many parameters as the embedding.
bool is_output_layer(const Layer& layer, Bytes embedding) {
  std::string name = layer.name;
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (const char* word : {"head", "output", "logit", "classifier", "loss", "softmax", "lm_"}) {
    if (name.find(word) != std::string::npos) return true;
  }
  return 2 * layer.parameters.count >= embedding.count;
}

/// Returns the last layer of a language model that lacks an output layer, or nothing for other
/// models.
std::optional<LayerIndex> end_without_output(const ModelProfile& profile) {
  const LayerRange blocks = find_blocks(profile).layers;
  if (blocks.size() == 0 || !profile.ties.empty()) return std::nullopt;
  Bytes embedding;
  for (std::int32_t l = 0; l < blocks.begin; ++l) {
    embedding = std::max(embedding, profile.layers[static_cast<std::size_t>(l)].parameters);
  }
  // Only language models begin with an embedding of at least half the size of a block.
  const Layer& block = profile.layers[static_cast<std::size_t>(blocks.begin)];
  if (2 * embedding.count < block.parameters.count) return std::nullopt;
  const auto count = static_cast<std::int32_t>(profile.layers.size());
  for (std::int32_t l = blocks.end; l < count; ++l) {
    if (is_output_layer(profile.layers[static_cast<std::size_t>(l)], embedding)) {
      return std::nullopt;
    }
  }
  return LayerIndex{count - 1};
}

}  // namespace

void add_doubts(ImportedProfile& imported) {
  ModelProfile& profile = imported.profile;
  if (const std::optional<LayerIndex> last = end_without_output(profile)) {
    profile.warnings.push_back(fmt::format(
        "the model has an embedding and transformer blocks, and behind them nothing like an output "
        "layer ({} is the last one): where it predicts words, their time and memory are missing",
        profile.layers[last->position()].name));
  }
  for (std::string& doubt : doubts_about(profile)) imported.warnings.push_back(std::move(doubt));
}

void warn_of_scaling(const ForeignProfileOptions& options, std::int64_t batch,
                     std::vector<std::string>& warnings) {
  if (options.batch_scaling) return;
  warnings.push_back(fmt::format(
      "layer times are taken to be proportional to the batch size, from one measurement at {}; "
      "--batch-scaling says otherwise",
      batch));
}

void warn_of_parameters(const Layer& layer, std::string_view called,
                        std::vector<std::string>& warnings) {
  if (layer.parameters <= kSuspiciousParameters) return;
  warnings.push_back(fmt::format("layer {} ({}) states {} GB of parameters; is its unit right?",
                                 layer.name, called, layer.parameters.count / 1'000'000'000));
}

BothDirections share_out(Duration both, Factor backward_ratio) {
  const Wide whole = Wide{kOne.billionths} + backward_ratio.billionths;
  const Duration forward{divide_up(Wide{both.ns} * kOne.billionths, whole)};
  return {.forward = forward, .backward = both - forward};
}

}  // namespace dapple::interop
