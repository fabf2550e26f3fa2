#include "files.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <ostream>
#include <system_error>
#include <utility>

#include "dapple/cost/costs.h"
#include "dapple/io/documents.h"

namespace dapple {
namespace {

namespace fs = std::filesystem;

Error file_error(const std::string& path, const std::string& message) {
  return Error{ErrorKind::Environment, path, {{"", message}}};
}

void check_writable(const std::string& path) {
  std::error_code fault;
  if (fs::is_directory(path, fault)) throw file_error(path, "expected a file, got a directory");
  // Devices and pipes are written to as they are; their folder need not be writable.
  if (fs::exists(path, fault) && !fs::is_regular_file(path, fault)) return;
  fs::path directory = fs::path(path).parent_path();
  if (directory.empty()) directory = ".";
  if (!fs::is_directory(directory, fault)) {
    throw file_error(path, "expected a directory to write to, got no " + directory.string());
  }
  if (access(directory.c_str(), W_OK | X_OK) != 0) {
    throw file_error(
        path, fmt::format("cannot write to {}: {}", directory.string(), std::strerror(errno)));
  }
}

bool same_file(const std::string& a, const std::string& b) {
  if (a == "-" || b == "-") return a == b;
  std::error_code fault;
  const fs::path first = fs::weakly_canonical(fs::absolute(a, fault), fault);
  const fs::path second = fs::weakly_canonical(fs::absolute(b, fault), fault);
  return !first.empty() && first == second;
}

ForeignProfileOptions foreign_options(const Options& options) {
  ForeignProfileOptions foreign;
  foreign.profile_batch = options.positive_integer("profile-batch", kMaxCount);
  foreign.optimizer = options.text("optimizer");
  foreign.global_batch = options.positive_integer("global-batch", kMaxCount);
  foreign.device = options.text("profile-device");
  if (options.has("batch-scaling")) {
    foreign.batch_scaling = options.choice("batch-scaling", {"proportional", "floor"}) == "floor"
                                ? BatchScaling::Floor
                                : BatchScaling::Proportional;
  }
  if (options.text("stash") == "output") {
    foreign.stash = kOne;
  } else if (const auto stash = options.text("stash")) {
    foreign.stash = parse_factor(*stash);
    if (!foreign.stash) {
      throw usage_error("--stash", fmt::format("expected output or a factor on the layer's output, "
                                               "got \"{}\"",
                                               printable(*stash)));
    }
  }
  return foreign;
}

/// The same devices, by name, in another topology.
void move_devices(Plan& plan, const Topology& from, const Topology& to, const std::string& source) {
  std::vector<Violation> missing;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    for (std::size_t r = 0; r < plan.stages[s].devices.size(); ++r) {
      DeviceIndex& device = plan.stages[s].devices[r];
      const std::string& name = from.device(device).name;
      const auto found = to.find_device(name);
      if (found) {
        device = *found;
      } else {
        missing.push_back({fmt::format("/stages/{}/devices/{}", s, r),
                           fmt::format("expected a device of the topology {}, got \"{}\"",
                                       printable(to.description().name), printable(name))});
      }
    }
  }
  if (!missing.empty()) throw Error{ErrorKind::BadInput, source, std::move(missing)};
}

}  // namespace

std::string source_name(const std::string& path) {
  return path == "-" ? "<stdin>" : path;
}

std::vector<OptionSpec> foreign_profile_options() {
  return {{.name = "profile-batch"},
          {.name = "optimizer"},
          {.name = "batch-scaling"},
          {.name = "stash"},
          {.name = "profile-device"}};
}

ImportedProfile load_profile(const std::string& path, const Options& options) {
  const std::string text = read_file(path);
  if (is_pipedream_graph(text)) {
    spdlog::info("{} is a PipeDream graph", source_name(path));
    return import_pipedream_graph(text, source_name(path), foreign_options(options));
  }
  for (const OptionSpec& spec : foreign_profile_options()) {
    if (options.has(spec.name)) {
      throw usage_error("--" + spec.name, "expected only with a PipeDream graph as --model, got " +
                                              source_name(path) + ", which says that itself");
    }
  }
  return {.profile = read_profile(text, source_name(path)), .warnings = {}};
}

ModelProfile load_own_profile(const std::string& path) {
  return read_profile(read_file(path), source_name(path));
}

TopologyDescription load_topology(const std::string& path) {
  return read_topology(read_file(path), source_name(path));
}

PlanDocument load_plan(const std::string& path) {
  return read_plan(read_file(path), source_name(path));
}

Replacement load_replacement(const Options& options) {
  Replacement replacement;
  const auto model = options.text("model");
  const auto topology = options.text("topo");
  if (model == "-" && topology == "-") {
    throw usage_error("--topo", "expected a file, got \"-\" for --model and --topo both");
  }
  if (model) replacement.profile = load_own_profile(*model);
  if (topology) replacement.topology = load_topology(*topology);
  return replacement;
}

Subject make_subject(PlanDocument document, const Replacement& replacement,
                     const std::string& source) {
  Topology topology{document.topology, source};
  if (replacement.topology) {
    Topology other{*replacement.topology, "--topo"};
    move_devices(document.plan, topology, other, source);
    topology = std::move(other);
    document.topology = *replacement.topology;
  }
  if (replacement.profile) {
    document.profile = *replacement.profile;
    const auto layer_count = static_cast<std::int32_t>(document.profile.layers.size());
    for (StagePlan& stage : document.plan.stages) {
      const bool in_range = stage.layers.begin >= 0 && stage.layers.begin <= stage.layers.end &&
                            stage.layers.end <= layer_count;
      if (in_range && !match_buckets(document.profile, stage)) stage.gradient_buckets.clear();
    }
  }
  std::vector<Violation> faults = costing_faults(document.plan, document.profile, topology);
  if (!faults.empty()) throw Error{ErrorKind::BadInput, source, std::move(faults)};
  return {.document = std::move(document), .topology = std::move(topology)};
}

void check_outputs(const std::vector<NamedPath>& outputs, const std::vector<NamedPath>& inputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (same_file(outputs[i].path, outputs[j].path)) {
        throw usage_error(outputs[i].option, "expected another file than that of " +
                                                 outputs[j].option + ", got " + outputs[i].path +
                                                 " for both");
      }
    }
    for (const NamedPath& input : inputs) {
      if (outputs[i].path != "-" && same_file(outputs[i].path, input.path)) {
        throw usage_error(outputs[i].option, "expected another file than that of " + input.option +
                                                 ", which would be overwritten, got " +
                                                 outputs[i].path);
      }
    }
  }
  for (const NamedPath& output : outputs) {
    if (output.path != "-") check_writable(output.path);
  }
}

std::string default_output(const ModelProfile& profile, const std::string& ending) {
  std::string name = profile.name;
  for (char& c : name) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '.' || c == '_';
    if (!is_plain) c = '-';
  }
  constexpr std::size_t kLongestName = 100;
  name.resize(std::min(name.size(), kLongestName));
  return "./" + (name.empty() ? "model" : name) + ending;
}

void write_result(Console& console, const std::string& path, const std::string& text) {
  if (path == "-") {
    console.out << text;
  } else {
    write_file(path, text);
    spdlog::info("wrote {} bytes to {}", text.size(), path);
  }
}

}  // namespace dapple
