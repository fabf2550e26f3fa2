#include "app/request/estimates.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "app/request/for_target.h"
#include "dapple/command_line/console.h"
#include "dapple/command_line/files.h"
#include "dapple/interop/profiles/configuration.h"
#include "dapple/io/documents/documents.h"
#include "dapple/io/files/read_file.h"
#include "dapple/io/gpus/gpus_document.h"
#include "dapple/profile/limits.h"
#include "dapple/profile/other_devices.h"

namespace dapple::app {
namespace {

/// Returns the parts of a text between commas.
std::vector<std::string> listed_names(const std::string& text) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    names.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

/// Returns the sets of parts of a list such as "full,core_attn+norm".
std::vector<RecomputedParts> recomputations_of(const std::string& text) {
  std::vector<RecomputedParts> sets;
  if (text == "none") return sets;
  for (const std::string& set : listed_names(text)) {
    const auto parts = recomputed_parts(set);
    const bool is_new = parts && std::find(sets.begin(), sets.end(), *parts) == sets.end();
    if (!is_new || parts->none() || !parts->is_sound()) {
      std::string names;
      for (const RecomputedPart part : kRecomputedParts) {
        names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(part));
      }
      throw command_line::usage_error(
          "--recompute",
          fmt::format("expected none, or different sets of {} with + within a set and commas "
                      "between them, got \"{}\"",
                      names, printable(text)));
    }
    sets.push_back(*parts);
  }
  return sets;
}

/// Returns the kinds of devices of the topology's servers.
std::set<std::string> kinds_of(const TopologyDescription* topology) {
  std::set<std::string> kinds;
  if (topology == nullptr) return kinds;
  for (const ServerGroup& group : topology->servers) kinds.insert(group.device);
  return kinds;
}

/// A GPU to estimate for, and the name of the profile's kind of device: the topology's for it, or
/// its own.
struct EstimatedGpu {
  const estimate::Gpu* gpu = nullptr;
  std::string device;
};

/// Returns the GPUs that are asked for, or that the topology consists of; those of a topology by
/// rising name of their kind.
std::vector<EstimatedGpu> gpus_of(const estimate::GpuTable& table, const EstimateRequest& request,
                                  const std::set<std::string>& kinds) {
  const std::string known = printable(estimate::names_of(table.gpus));
  if (!request.gpu && kinds.empty()) {
    throw command_line::usage_error(
        "--gpu", fmt::format("expected the GPU that a configuration is estimated for, of {}, got "
                             "none",
                             known));
  }
  std::vector<EstimatedGpu> gpus;
  const std::vector<std::string> names = request.gpu
                                             ? listed_names(*request.gpu)
                                             : std::vector<std::string>(kinds.begin(), kinds.end());
  for (const std::string& name : names) {
    const estimate::Gpu* const gpu = table.find(name);
    if (gpu == nullptr) {
      throw command_line::usage_error(
          "--gpu", fmt::format("expected one of {}, or another that a file for --gpus describes "
                               "(topologies/README.md), got \"{}\"{}",
                               known, printable(name),
                               request.gpu ? "" : ", a kind of device of the topology"));
    }
    std::string device = request.gpu ? gpu->name : name;
    for (const std::string& kind : kinds) {
      if (request.gpu && table.find(kind) == gpu) device = kind;
    }
    const bool is_named = std::any_of(gpus.begin(), gpus.end(), [&](const EstimatedGpu& other) {
      return other.device == device;
    });
    if (is_named) {
      throw command_line::usage_error(
          "--gpu", fmt::format("expected each GPU once, got {} again", printable(name)));
    }
    gpus.push_back({gpu, std::move(device)});
  }
  if (gpus.size() > kMaxOtherDevices + 1) {
    throw command_line::usage_error("--gpu", fmt::format("expected at most {} GPUs, got {}",
                                                         kMaxOtherDevices + 1, gpus.size()));
  }
  return gpus;
}

/// The options that say which forms of parallelism are estimated.
std::vector<command_line::OptionSpec> options_of_forms() {
  return {{.name = "max-context",
           .value = "N",
           .text = "Make variants up to context degree N.",
           .default_value = "1"},
          {.name = "context-kind",
           .value = "KIND",
           .choices = {"all-gather", "ring", "all-to-all"},
           .text = "Exchange keys and values of context ranks by {}.",
           .default_value = "all-gather"},
          {.name = "max-experts",
           .value = "N",
           .text = "Make variants up to expert degree N.",
           .default_value = "64"},
          {.name = "max-expert-tensor",
           .value = "N",
           .text = "Divide each expert among up to N ranks.",
           .default_value = "1"},
          {.name = "recompute",
           .value = "SETS",
           .text = "Make variants that recompute parts of blocks, such as full,core_attn+norm.",
           .default_value = "full",
           .details = "Parts are core_attn, norm, mlp, moe, moe_act and full; none makes none."}};
}

/// The options that change the figures of every form.
std::vector<command_line::OptionSpec> options_of_figures() {
  return {{.name = "gradient-bytes",
           .value = "N",
           .choices = {"2", "4"},
           .text = "Keep gradients of {} bytes.",
           .default_value = "4",
           .details = "As many of each parameter are kept and reduced."},
          {.name = "vocabulary-multiple",
           .value = "N",
           .text = "Pad the vocabulary to a multiple of N on each tensor rank.",
           .default_value = "1",
           .details = "Megatron-LM calls it --make-vocab-size-divisible-by and takes 128."},
          {.name = "imbalance",
           .value = "X",
           .text = "Give the busiest device with experts X times the mean number of tokens.",
           .default_value = "1"},
          {.name = "gpus",
           .value = "FILE",
           .kind = command_line::ValueKind::File,
           .text = "Read GPUs from FILE, which is like topologies/gpus.json."}};
}

}  // namespace

std::vector<command_line::OptionSpec> estimate_options() {
  return {{.name = "gpu",
           .value = "NAMES",
           .text = "Estimate a configuration for GPUs, such as A100,H100.",
           .details = "The default is the topology's kinds of device. topologies/gpus.json lists "
                      "the GPUs that are known."},
          {.name = "sequence", .value = "N", .text = "Use N tokens per sample."},
          {.name = "precision",
           .value = "FORMAT",
           .choices = {"bf16", "fp16", "tf32", "fp32"},
           .text = "Compute in {}.",
           .default_value = "bf16"}};
}

std::vector<command_line::OptionSpec> more_estimate_options() {
  std::vector<command_line::OptionSpec> options = {
      {.name = "calibration",
       .value = "NAME",
       .text = "Estimate with this calibration (default: the GPU's).",
       .details = "topologies/gpus.json has them; dapple-plan calibrate makes others."},
      {.name = "framework",
       .value = "NAME",
       .text = "Count what this framework keeps in memory.",
       .details = "topologies/gpus.json has megatron-lm, which may also be called megatron, "
                  "nanotron and nanotron-keeping-gathered; without one nothing is counted."},
      {.name = "decoder-sequence",
       .value = "N",
       .text = "Use N tokens per sample for the decoder.",
       .default_value = "as many"},
      {.name = "attention",
       .value = "KIND",
       .choices = {"fused", "unfused"},
       .text = "Compute attention {}, that is without or with stored scores.",
       .default_value = "fused"},
      {.name = "no-sequence-parallel", .text = "Leave out sequence parallelism."}};
  std::ranges::move(options_of_forms(), std::back_inserter(options));
  std::ranges::move(options_of_figures(), std::back_inserter(options));
  return options;
}

EstimateRequest estimate_request(const command_line::Options& options) {
  EstimateRequest request;
  estimate::EstimateOptions& estimate = request.options;
  request.gpu = options.text("gpu");
  request.gpus = options.text("gpus");
  request.calibration = options.text("calibration");
  request.framework = options.text("framework");
  estimate.sequence = options.positive_integer("sequence", estimate::kMostTokens).value_or(0);
  estimate.decoder_sequence = options.positive_integer("decoder-sequence", estimate::kMostTokens);
  for (const estimate::Precision each : estimate::kPrecisions) {
    if (options.has("precision") && options.choice("precision") == to_string(each)) {
      estimate.precision = each;
    }
  }
  // A command without the option has its default.
  const std::string recomputed = options.text("recompute").value_or("full");
  estimate.recomputations = recomputations_of(recomputed);
  if (options.has("attention")) {
    estimate.has_fused_attention = options.choice("attention") == "fused";
  }
  for (const ContextExchange each : kContextExchanges) {
    if (options.has("context-kind") && options.choice("context-kind") == to_string(each)) {
      estimate.context_exchange = each;
    }
  }
  estimate.has_sequence_parallelism = !options.has("no-sequence-parallel");
  estimate.max_context =
      options.positive_integer("max-context", kMaxContextParallel).value_or(estimate.max_context);
  estimate.max_experts =
      options.positive_integer("max-experts", kMaxGroup).value_or(estimate.max_experts);
  estimate.max_expert_tensor = options.positive_integer("max-expert-tensor", kMaxTensorParallel)
                                   .value_or(estimate.max_expert_tensor);
  if (options.has("gradient-bytes")) {
    estimate.gradient_bytes = options.choice("gradient-bytes") == "2" ? 2 : 4;
  }
  estimate.vocabulary_multiple =
      options.positive_integer("vocabulary-multiple", estimate::kMostVocabularyMultiple)
          .value_or(estimate.vocabulary_multiple);
  estimate.imbalance = options.positive_factor("imbalance").value_or(kOne);
  if (estimate.imbalance < kOne) {
    throw command_line::usage_error("--imbalance", "expected 1 or more, got less");
  }
  for (const auto& rows : {estimate_options(), more_estimate_options()}) {
    for (const command_line::OptionSpec& spec : rows) {
      if (options.has(spec.name)) request.given.push_back(spec.name);
    }
  }
  return request;
}

namespace {

const estimate::Calibration& calibration_of(const estimate::GpuTable& table,
                                            const estimate::Gpu& gpu,
                                            const EstimateRequest& request) {
  if (!request.calibration) return table.calibration_of(gpu);
  for (const estimate::Calibration& calibration : table.calibrations) {
    if (calibration.name == *request.calibration) return calibration;
  }
  throw command_line::usage_error(
      "--calibration",
      fmt::format("expected one of {}, got {}", printable(estimate::names_of(table.calibrations)),
                  printable(*request.calibration)));
}

/// Returns the framework that is asked for or that the target is; one that keeps nothing besides
/// where neither is known.
estimate::Framework framework_of(const estimate::GpuTable& table, const EstimateRequest& request) {
  const std::string name = request.framework.value_or(request.target.value_or(""));
  for (const std::string& each : {name, framework_of_target(name)}) {
    if (const estimate::Framework* const found = table.framework(each)) return *found;
  }
  if (!request.framework) return {};
  throw command_line::usage_error(
      "--framework", fmt::format("expected one of {}, got {}",
                                 printable(estimate::names_of(table.frameworks)), printable(name)));
}

ModelProfile estimated_on(const estimate::Gpu& gpu, const estimate::Architecture& architecture,
                          const estimate::GpuTable& table, const EstimateRequest& request,
                          const estimate::EstimateOptions& how) {
  const std::vector<Violation> faults = estimate::option_faults(architecture, gpu, how);
  if (!faults.empty()) {
    throw command_line::usage_error(faults.front().place, faults.front().message);
  }
  const std::string fault = estimate::indivisible(architecture, how, request.pinned);
  if (!fault.empty()) {
    throw command_line::usage_error("--pin",
                                    "expected degrees that divide the model, but " + fault);
  }
  estimate::Calibration calibration = calibration_of(table, gpu, request);
  calibration.launch_floor = request.launch_floor.value_or(calibration.launch_floor);
  for (Duration* const floor : {&calibration.launch_floor, &calibration.collective_floor}) {
    *floor = scale_up(*floor, request.launch_share);
  }
  return estimate::estimate_profile(architecture, gpu, calibration, how);
}

/// Adds the times of another GPU, and what is noted of them.
void join(ModelProfile& profile, const ModelProfile& other) {
  add_other_device(profile, other);
  profile.source += "; and " + other.source;
  const auto add_new = [](std::vector<std::string>& texts, const std::vector<std::string>& more) {
    for (const std::string& text : more) {
      if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(text);
    }
  };
  add_new(profile.notes, other.notes);
  add_new(profile.warnings, other.warnings);
  // Plans are as uncertain as the times that are known least well.
  profile.calibration_error = profile.calibration_error && other.calibration_error
                                  ? std::max(profile.calibration_error, other.calibration_error)
                                  : std::nullopt;
  // The step is that of one kind on all devices: of the slowest, whichever was named first.
  std::optional<Factor>& step = profile.optimizer.step_ns_per_parameter_byte;
  step = std::max(step, other.optimizer.step_ns_per_parameter_byte);
}

}  // namespace

estimate::GpuTable known_gpus(const std::optional<std::string>& path) {
  if (!path) return io::shipped_gpus();
  return io::read_gpus(io::read_file(*path), command_line::source_name(*path));
}

ModelProfile estimated_profile(const std::string& text, const std::string& path,
                               const EstimateRequest& request,
                               const TopologyDescription* topology) {
  const estimate::Architecture architecture =
      interop::read_configuration(text, command_line::source_name(path));
  const estimate::GpuTable table = known_gpus(request.gpus);
  estimate::EstimateOptions how = request.options;
  how.has_asked_calibration = request.calibration.has_value();
  how.framework = framework_of(table, request);
  std::optional<ModelProfile> joined;
  for (const EstimatedGpu& each : gpus_of(table, request, kinds_of(topology))) {
    ModelProfile own = estimated_on(*each.gpu, architecture, table, request, how);
    own.device = each.device;
    if (!joined) {
      joined = std::move(own);
    } else {
      join(*joined, own);
    }
  }
  ModelProfile& profile = *joined;
  for (const Layer& layer : profile.layers) {
    const Measurement& most = layer.measurements.back();
    const std::int64_t largest =
        std::max({layer.parameters.count, most.stash.count, most.workspace.count, most.output.count,
                  most.forward.ns, most.backward.ns});
    if (largest <= kMaxCount) continue;
    throw Error{ErrorKind::BadInput,
                command_line::source_name(path),
                {{"", fmt::format("expected a model whose layers have at most {} bytes and "
                                  "nanoseconds, got more in {}",
                                  kMaxCount, layer.name)}}};
  }
  // What else no profile may have the reader names.
  return io::read_profile(io::write_profile(profile),
                          fmt::format("the profile estimated from {}", path));
}

}  // namespace dapple::app
