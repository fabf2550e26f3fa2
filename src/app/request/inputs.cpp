#include "app/request/inputs.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>
#include <utility>

#include "app/request/file_kinds.h"
#include "app/request/groups.h"
#include "dapple/cost/buckets.h"
#include "dapple/cost/compatible.h"
#include "dapple/interop/plans/foreign_plan.h"
#include "dapple/interop/profiles/configuration.h"
#include "dapple/interop/profiles/pipedream.h"
#include "dapple/io/documents/documents.h"
#include "dapple/io/files/read_file.h"
#include "dapple/profile/variants.h"
#include "dapple/report/show.h"
#include "dapple/schedule/schedule.h"

namespace dapple::app {
namespace {

/// Makes the buckets anew that are not those of the profile's layers, and the tied gradients.
void remake_buckets(Plan& plan, const ModelProfile& profile) {
  const auto layer_count = static_cast<std::int32_t>(profile.layers.size());
  const bool are_in_range =
      std::all_of(plan.stages.begin(), plan.stages.end(), [&](const StagePlan& stage) {
        return stage.layers.begin >= 0 && stage.layers.begin <= stage.layers.end &&
               stage.layers.end <= layer_count;
      });
  if (!are_in_range) return;  // The plan is refused for it.
  for (StagePlan& stage : plan.stages) {
    if (!match_buckets(in_form(profile, stage.form), stage)) stage.gradient_buckets.clear();
  }
  fill_gradient_buckets(plan, profile);
}

/// Replaces the plan's devices by those of the same names in another topology.
void move_devices(Plan& plan, const Topology& from, const Topology& to, const std::string& source) {
  std::vector<Violation> missing;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    std::vector<DeviceIndex> lost;
    for (DeviceIndex& device : plan.stages[s].devices) {
      const auto found = to.find_device(from.device(device).name);
      if (found) {
        device = *found;
      } else {
        lost.push_back(device);
      }
    }
    if (lost.empty()) continue;
    missing.push_back({fmt::format("/stages/{}/devices", s),
                       fmt::format("expected devices of the topology {}, got {}",
                                   printable(to.description().name),
                                   printable(report::show_devices(lost, from)))});
  }
  if (!missing.empty()) throw Error{ErrorKind::BadInput, source, std::move(missing)};
}

ModelProfile own_profile(const std::string& text, const std::string& path) {
  refuse_others(text, command_line::source_name(path), "profile");
  return io::read_profile(text, command_line::source_name(path));
}

}  // namespace

std::string measured_devices(const ModelProfile& profile) {
  std::string words = printable(profile.device);
  for (const std::string& other : profile.other_devices) {
    const bool is_last = &other == &profile.other_devices.back();
    words += fmt::format("{} {}", is_last ? " and" : ",", printable(other));
  }
  return words;
}

command_line::OptionSpec model_option(const std::string& text, const std::string& default_value) {
  return {.name = "model",
          .value = "FILE",
          .kind = command_line::ValueKind::File,
          .text = text,
          .default_value = default_value,
          .details = "\"-\" is stdin."};
}

command_line::OptionSpec topology_option(const std::string& text,
                                         const std::string& default_value) {
  return {.name = "topo",
          .value = "FILE",
          .kind = command_line::ValueKind::File,
          .text = text,
          .default_value = default_value,
          .details = "\"-\" is stdin."};
}

command_line::OptionSpec time_scale_option() {
  return {.name = "time-scale",
          .value = "X",
          .text = "Scale times by X where a device states no time scale.",
          .details = "It is needed for kinds of device that were not profiled."};
}

std::vector<command_line::OptionSpec> foreign_profile_options() {
  return {{.name = "profile-batch",
           .value = "N",
           .text = "State that N samples were measured at a time.",
           .details = "Graphs of PipeDream do not state it."},
          {.name = "optimizer",
           .value = "NAME",
           .choices = {"sgd", "momentum", "rmsprop", "adam"},
           .text = "Count the memory of {}."},
          {.name = "batch-scaling",
           .value = "WAY",
           .choices = {"proportional", "floor"},
           .text = "Scale times to other batch sizes: {}.",
           .details = "With floor, a batch below the measured one takes as long as that."},
          {.name = "stash",
           .value = "output|X",
           .choices = {"output"},
           .text = "Keep X times a layer's output for its backward.",
           .details =
               "The word \"output\" stands for 1. Files of PipeDream and Metis do not state it."},
          {.name = "profile-device",
           .value = "NAME",
           .text = "Name the kind of device that was measured."},
          {.name = "time-unit",
           .value = "UNIT",
           .choices = {"s", "ms", "us", "ns"},
           .text = "Read times that name no unit in {}.",
           .details = "The default is ms, but s for files of Piper."}};
}

ForeignRequest foreign_request(const command_line::Options& options) {
  interop::ForeignProfileOptions foreign;
  foreign.profile_batch = options.positive_integer("profile-batch", kMaxCount);
  foreign.optimizer = options.text("optimizer");
  foreign.global_batch = options.positive_integer("global-batch", kMaxCount);
  foreign.device = options.text("profile-device");
  if (options.has("time-unit")) {
    foreign.time_unit = interop::time_unit(options.choice("time-unit"));
  }
  if (options.has("batch-scaling")) {
    foreign.batch_scaling = options.choice("batch-scaling") == "floor" ? BatchScaling::Floor
                                                                       : BatchScaling::Proportional;
  }
  if (options.is_word("stash", "output")) {
    foreign.stash = kOne;
  } else if (const auto stash = options.text("stash")) {
    foreign.stash = command_line::parse_factor(*stash);
    if (!foreign.stash) {
      throw command_line::usage_error(
          "--stash", fmt::format("expected output or a factor on the layer's output, "
                                 "got \"{}\"",
                                 printable(*stash)));
    }
  }
  foreign.every_degree = options.is_word("tensor-parallel", "all");
  if (!foreign.every_degree) {
    foreign.tensor_parallel = options.positive_integer("tensor-parallel", kMaxCount);
  }
  foreign.backward_ratio = options.positive_factor("backward-ratio");
  foreign.output = options.size("output-size");
  foreign.layers = options.positive_integer("layers", kMaxCount);
  ForeignRequest request{
      .options = std::move(foreign), .estimate = estimate_request(options), .given = {}};
  for (const command_line::OptionSpec& spec : foreign_profile_options()) {
    if (options.has(spec.name)) request.given.push_back(spec.name);
  }
  return request;
}

bool is_estimated(const std::string& text, const ForeignRequest& foreign) {
  // With options for one, a file that is no document of ours and no graph can only be meant as one.
  const bool is_meant = !foreign.estimate.given.empty() && io::document_kind(text).empty() &&
                        !interop::is_pipedream_graph(text);
  return is_meant || interop::is_configuration(text);
}

interop::ImportedProfile profile_of(const std::string& text, const std::string& path,
                                    const ForeignRequest& foreign,
                                    const std::function<const TopologyDescription&()>& topology) {
  const bool is_configuration = is_estimated(text, foreign);
  if (!is_configuration && !foreign.estimate.given.empty()) {
    throw command_line::usage_error("--" + foreign.estimate.given.front(),
                                    "expected only with a model's configuration as --model, got " +
                                        command_line::source_name(path));
  }
  if (!is_configuration && interop::is_pipedream_graph(text)) {
    spdlog::info("{} is a PipeDream graph", command_line::source_name(path));
    return interop::import_pipedream_graph(text, command_line::source_name(path), foreign.options);
  }
  if (!foreign.given.empty()) {
    throw command_line::usage_error("--" + foreign.given.front(),
                                    "expected only with a PipeDream graph as --model, got " +
                                        command_line::source_name(path) +
                                        ", which says that itself");
  }
  if (is_configuration) {
    return {.profile = estimated_profile(text, path, foreign.estimate, &topology()),
            .warnings = {}};
  }
  return {.profile = own_profile(text, path), .warnings = {}};
}

void settle_device(ModelProfile& profile, const TopologyDescription& topology,
                   std::vector<std::string>& warnings) {
  if (!profile.device.empty()) return;
  std::set<std::string> kinds;
  for (const ServerGroup& group : topology.servers) kinds.insert(group.device);
  if (kinds.size() != 1) {
    throw command_line::usage_error(
        "--profile-device",
        fmt::format("expected the kind of device that the profile was measured on, "
                    "since the topology has {} kinds",
                    kinds.size()));
  }
  profile.device = *kinds.begin();
  warnings.push_back(
      fmt::format("the profile does not name its device: its times are taken as those of a {} "
                  "(--profile-device names another)",
                  profile.device));
}

ModelProfile load_own_profile(const std::string& path) {
  return own_profile(io::read_file(path), path);
}

TopologyDescription load_topology(const std::string& path) {
  const std::string text = io::read_file(path);
  refuse_others(text, command_line::source_name(path), "topology");
  return io::read_topology(text, command_line::source_name(path));
}

PlanDocument load_own_plan(const std::string& path) {
  return own_plan(io::read_file(path), path);
}

io::UncheckedPlan load_unchecked_plan(const std::string& path) {
  const std::string text = io::read_file(path);
  refuse_others(text, command_line::source_name(path), "plan");
  return io::read_unchecked_plan(text, command_line::source_name(path));
}

PlanDocument own_plan(const std::string& text, const std::string& path) {
  refuse_others(text, command_line::source_name(path), "plan");
  return io::read_plan(text, command_line::source_name(path));
}

void apply_time_scale(const std::optional<Factor>& factor, const ModelProfile& profile,
                      TopologyDescription& topology) {
  if (!factor) return;
  bool applied = false;
  for (DeviceKind& kind : topology.devices) {
    if (time_source(profile, kind)) continue;
    applied = kind.time_scale.emplace(profile.device, *factor).second || applied;
  }
  if (!applied) {
    throw command_line::usage_error(
        "--time-scale", fmt::format("expected a topology with a kind of device that has no "
                                    "time_scale for {}, got {}, where none is missing",
                                    printable(profile.device), printable(topology.name)));
  }
}

void name_time_scale(std::vector<Violation>& faults) {
  for (Violation& fault : faults) {
    if (fault.place.starts_with("/devices/")) fault.message += " (--time-scale X gives it)";
  }
}

void check_costs(const PlanDocument& document, const Topology& topology, const std::string& source,
                 const std::string& topology_source) {
  std::vector<Violation> faults = costing_faults(document.plan, document.profile, topology);
  if (faults.empty()) return;
  name_time_scale(faults);
  const bool is_of_devices = faults.front().place.starts_with("/devices");
  if (is_of_devices) throw Error{ErrorKind::BadInput, topology_source, std::move(faults)};
  throw Error{ErrorKind::BadInput, source, interop::in_words(std::move(faults))};
}

Replacement load_replacement(const std::optional<std::string>& model,
                             const std::optional<std::string>& topology) {
  Replacement replacement;
  if (model && topology) command_line::check_inputs({{"--model", *model}, {"--topo", *topology}});
  if (model) replacement.profile = load_own_profile(*model);
  if (topology) replacement.topology = load_topology(*topology);
  return replacement;
}

Subject make_subject(PlanDocument document, const Replacement& replacement,
                     const std::string& source) {
  Topology topology{document.topology, source};
  if (replacement.topology || replacement.profile) {
    ModelProfile profile = replacement.profile ? *replacement.profile : document.original_profile();
    profile.skip_tensors = document.plan.skip_tensors;
    profile.boundaries = document.plan.boundaries;
    const Topology original = replacement.topology ? Topology{*replacement.topology, "--topo"}
                                                   : Topology{document.original_topology(), source};
    set_inputs(document, profile, original, document.plan.parallelism, source);
  }
  if (replacement.topology) {
    Topology other{document.topology, "--topo"};
    move_devices(document.plan, topology, other, source);
    topology = std::move(other);
  }
  if (replacement.profile) remake_buckets(document.plan, document.profile);
  std::vector<Violation> faults = costing_faults(document.plan, document.profile, topology);
  // With depths that do not rise only stages that deal micro-batches may wait for ever.
  if (faults.empty() && deals_micro_batches(document.plan)) {
    faults = validate(generate(document.plan), document.plan);
  }
  if (!faults.empty()) throw Error{ErrorKind::BadInput, source, std::move(faults)};
  return {.document = std::move(document), .topology = std::move(topology)};
}

void check_forwarded(const Plan& plan, std::string_view who, const std::string& source) {
  if (plan.skip_tensors == SkipTensors::Forwarded) return;
  throw Error{ErrorKind::BadInput,
              source,
              {{"/skip_tensors",
                fmt::format("expected forwarded, as {} no tensors directly, got direct", who)}}};
}

}  // namespace dapple::app
