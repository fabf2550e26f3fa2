// Models, topologies and plans as the commands ask for them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dapple/command_line/files.h"
#include "dapple/command_line/options.h"
#include "dapple/interop/profiles/foreign_profile.h"
#include "dapple/io/documents/documents.h"
#include "dapple/plan/document.h"
#include "dapple/topology/description.h"
#include "dapple/topology/topology.h"

namespace dapple::app {

inline constexpr const char* kTool = "dapple-plan " DAPPLE_VERSION;

/// Options of plan that say what a PipeDream graph does not.
std::vector<command_line::OptionSpec> foreign_profile_options();

/// All options that say what a foreign profile does not, as far as the command has them.
interop::ForeignProfileOptions foreign_options(const command_line::Options& options);

/// The profile of --model, in our format or as a PipeDream graph, told apart by its content. The
/// foreign options with one of our profiles are a usage error: they would do nothing.
interop::ImportedProfile load_profile(const std::string& path,
                                      const command_line::Options& options);

// In our formats; another tool's file is refused with the command that takes it.
ModelProfile load_own_profile(const std::string& path);
TopologyDescription load_topology(const std::string& path);
PlanDocument load_own_plan(const std::string& path);
io::UncheckedPlan load_unchecked_plan(const std::string& path);
/// The plan in the text of that file.
PlanDocument own_plan(const std::string& text, const std::string& path);

/// A graph need not say what it was measured on; with one kind of device there is only one answer,
/// which is a warning. Throws Error(Usage) where there are several.
void settle_device(ModelProfile& profile, const TopologyDescription& topology,
                   std::vector<std::string>& warnings);

/// Gives --time-scale to the kinds of device that have none for the profiled one, so that the
/// plan's own description says what was assumed. Throws Error(Usage) where it would do nothing.
void apply_time_scale(const command_line::Options& options, const ModelProfile& profile,
                      TopologyDescription& topology);

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
Replacement load_replacement(const command_line::Options& options);

/// Puts other documents into a plan's: devices are found again by name, gradient buckets that are
/// not those of the new layers are dropped, to be made anew. Throws Error(BadInput) naming `source`
/// where the plan is not sound for them: layers, devices, a model not measured for a device.
Subject make_subject(PlanDocument document, const Replacement& replacement,
                     const std::string& source);

}  // namespace dapple::app
