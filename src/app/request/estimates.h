// Makes profiles of models that were never measured, from their configurations.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dapple/command_line/options.h"
#include "dapple/estimate/estimate.h"
#include "dapple/estimate/gpu.h"
#include "dapple/interop/profiles/foreign_profile.h"
#include "dapple/profile/parallelism.h"
#include "dapple/topology/description.h"

namespace dapple::app {

/// What options say of an estimate.
struct EstimateRequest {
  estimate::EstimateOptions options;
  /// The names of GPUs with commas between them, and a file that describes them instead of the
  /// program.
  std::optional<std::string> gpu;
  std::optional<std::string> gpus;
  /// The name of the calibration; that of the GPU if not given.
  std::optional<std::string> calibration;
  /// The name of the framework. If not given it is that of the target, if one is known, or else one
  /// that keeps nothing besides.
  std::optional<std::string> framework;
  /// The target of the plan, as named by --for.
  std::optional<std::string> target = {};
  /// The degrees that --pin asks for, which the model has to be divisible by; 1 for others.
  Parallelism pinned = {};
  /// The launch floor in place of the calibration's.
  std::optional<Duration> launch_floor = {};
  /// The share of the calibration's floors, or of that one, that is taken.
  Factor launch_share = kOne;
  /// The names of the options that were given.
  std::vector<std::string> given;
};

/// Returns the rows of the options that every command with an estimate has, and those that only
/// "estimate" has.
std::vector<command_line::OptionSpec> estimate_options();
std::vector<command_line::OptionSpec> more_estimate_options();

/// Reads these options, of those that the command has.
EstimateRequest estimate_request(const command_line::Options& options);

/// Returns the GPUs that the program knows and those of the file, if there is one. Throws
/// Error(BadInput) for faults of the file.
estimate::GpuTable known_gpus(const std::optional<std::string>& path);

/// Estimates the profile of a configuration. The GPUs are those asked for, or the kinds of device
/// of the topology, whose names the profile then has; the times of all but the first are
/// ModelProfile::other_devices. Throws Error(Usage) if there is neither or an option does not fit
/// the model, and Error(BadInput) for faults of the files.
ModelProfile estimated_profile(const std::string& text, const std::string& path,
                               const EstimateRequest& request, const TopologyDescription* topology);

}  // namespace dapple::app
