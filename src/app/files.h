// Files that commands read and write.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "console.h"
#include "dapple/core/error.h"
#include "dapple/core/quantity.h"
#include "dapple/interop/pipedream.h"
#include "dapple/plan/plan.h"
#include "dapple/topology/topology.h"
#include "options.h"

namespace dapple {

inline constexpr const char* kTool = "dapple-plan " DAPPLE_VERSION;

/// A path for messages: "<stdin>" for "-".
std::string source_name(const std::string& path);

/// Options of plan that say what a PipeDream graph does not.
std::vector<OptionSpec> foreign_profile_options();

/// The profile of --model, in our format or as a PipeDream graph, told apart by its content. The
/// foreign options with one of our profiles are a usage error: they would do nothing.
ImportedProfile load_profile(const std::string& path, const Options& options);

ModelProfile load_own_profile(const std::string& path);
TopologyDescription load_topology(const std::string& path);
PlanDocument load_plan(const std::string& path);

/// A plan together with the model and topology that it is judged with.
struct Subject {
  PlanDocument document;
  Topology topology;
};

/// What --model and --topo replace in a plan's document; nothing where they are not given.
struct Replacement {
  std::optional<ModelProfile> profile;
  std::optional<TopologyDescription> topology;
};
Replacement load_replacement(const Options& options);

/// Puts other documents into a plan's: devices are found again by name, gradient buckets that are
/// not those of the new layers are dropped, to be made anew. Throws Error(BadInput) naming `source`
/// where the plan is not sound for them: layers, devices, a model not measured for a device.
Subject make_subject(PlanDocument document, const Replacement& replacement,
                     const std::string& source);

/// Refuses outputs that could only fail later or would destroy an input: a directory that is
/// missing or not writable, two outputs of the same name, an output over an input.
struct NamedPath {
  std::string option;
  std::string path;
};
void check_outputs(const std::vector<NamedPath>& outputs, const std::vector<NamedPath>& inputs);

/// "./bert-48.plan.json" for ".plan.json"; what does not belong into a file's name becomes '-'.
std::string default_output(const ModelProfile& profile, const std::string& ending);

/// Whole text to a file, or to the console's out for "-".
void write_result(Console& console, const std::string& path, const std::string& text);

}  // namespace dapple
