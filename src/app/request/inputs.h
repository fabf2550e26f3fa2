// Loads models, topologies and plans for the commands.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "app/request/estimates.h"
#include "dapple/command_line/files.h"
#include "dapple/command_line/options.h"
#include "dapple/interop/profiles/foreign_profile.h"
#include "dapple/io/documents/documents.h"
#include "dapple/plan/document.h"
#include "dapple/topology/description.h"
#include "dapple/topology/topology.h"

namespace dapple::app {

inline constexpr const char* kTool = "dapple-plan " DAPPLE_VERSION;

/// Returns the kinds of device that a profile has times of, the profile's own first, in words: "A",
/// "A and B" or "A, B and C".
std::string measured_devices(const ModelProfile& profile);

/// Returns the row of --model, --topo or --time-scale; a default may be empty.
command_line::OptionSpec model_option(const std::string& text,
                                      const std::string& default_value = {});
command_line::OptionSpec topology_option(const std::string& text,
                                         const std::string& default_value = {});
command_line::OptionSpec time_scale_option();

/// Returns the rows of the options that supply what a PipeDream graph does not say.
std::vector<command_line::OptionSpec> foreign_profile_options();

/// What options say about a foreign profile.
struct ForeignRequest {
  interop::ForeignProfileOptions options;
  EstimateRequest estimate;
  /// The names of those of foreign_profile_options() that were given.
  std::vector<std::string> given;
};

/// Reads all options that supply what a foreign profile does not say, of those that the command
/// has.
ForeignRequest foreign_request(const command_line::Options& options);

/// Whether the text is, or is meant as, a model's configuration, whose profile is estimated.
/// O(length).
bool is_estimated(const std::string& text, const ForeignRequest& foreign);

/// Reads a profile in our format, or makes one of a PipeDream graph or of a model's configuration;
/// which it is, the text tells. `path` is its name for messages. Throws Error(Usage) if options are
/// given that are for another kind of file, as they would have no effect. The topology is called
/// for if the configuration's GPU has to be known.
interop::ImportedProfile profile_of(const std::string& text, const std::string& path,
                                    const ForeignRequest& foreign,
                                    const std::function<const TopologyDescription&()>& topology);

// These load our formats; the error for another tool's file names the command that takes it.

ModelProfile load_own_profile(const std::string& path);
TopologyDescription load_topology(const std::string& path);
PlanDocument load_own_plan(const std::string& path);
io::UncheckedPlan load_unchecked_plan(const std::string& path);
/// Parses the text of a plan file; `path` is its name for messages.
PlanDocument own_plan(const std::string& text, const std::string& path);

/// Sets the device of a profile that does not name one. If the topology has only one kind of
/// device, that kind is assumed and a warning added; otherwise throws Error(Usage).
void settle_device(ModelProfile& profile, const TopologyDescription& topology,
                   std::vector<std::string>& warnings);

/// Applies a given --time-scale to the kinds of device that have no time scale for the profiled
/// one, so that the plan file records the assumption. Throws Error(Usage) if there is none.
void apply_time_scale(const std::optional<Factor>& factor, const ModelProfile& profile,
                      TopologyDescription& topology);

/// Adds to the faults of devices that have no times for the model, as check_compatible() finds
/// them, the option that gives them.
void name_time_scale(std::vector<Violation>& faults);

/// Throws Error(BadInput) if the plan cannot be costed. The error names `source`, in whose words
/// its faults are, or `topology_source` for faults of devices, which lack times for the model.
void check_costs(const PlanDocument& document, const Topology& topology, const std::string& source,
                 const std::string& topology_source);

/// A plan together with the model and topology by which it is evaluated.
struct Subject {
  PlanDocument document;
  Topology topology;
};

/// What --model and --topo replace in a plan's document; empty where they are not given.
struct Replacement {
  std::optional<ModelProfile> profile;
  std::optional<TopologyDescription> topology;
};
/// Loads the files that were given.
Replacement load_replacement(const std::optional<std::string>& model,
                             const std::optional<std::string>& topology);

/// Replaces the model or topology of a plan. Devices are matched by name; gradient buckets that do
/// not match the new layers are made anew. Throws Error(BadInput) naming `source` if the plan is
/// not valid for the replacement: layers, devices, or a model that is not measured for a device.
Subject make_subject(PlanDocument document, const Replacement& replacement,
                     const std::string& source);

/// Throws Error(BadInput) naming `source` for a plan whose tensors are sent directly to stages
/// further on than the next one. `who` is what sends none so, as the subject of a sentence.
void check_forwarded(const Plan& plan, std::string_view who, const std::string& source);

}  // namespace dapple::app
