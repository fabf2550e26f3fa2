// The request that the options of "dapple-plan plan" make.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/request/inputs.h"
#include "dapple/command_line/description.h"
#include "dapple/plan/runtime.h"
#include "dapple/planner/request/planner_options.h"

namespace dapple::app {

/// The options of the command as values. Whether they suit the model and the topology is checked
/// later, when these have been read.
struct PlanCommandRequest {
  std::string model;
  std::string topology;
  ForeignRequest foreign;
  std::optional<Factor> time_scale;
  /// Empty if the profile's own is taken.
  std::optional<std::int64_t> global_batch;
  SkipTensors skip_tensors = SkipTensors::Forwarded;
  /// All but the global batch size and the pins, which depend on the inputs.
  planner::PlannerOptions planner;
  std::vector<std::string> pins;
  std::optional<std::string> target;
  std::optional<Runtime> runtime;
  std::optional<Duration> time_limit;
  std::optional<std::string> output;
  std::optional<std::string> trace;
  /// The file for the proof of the bound.
  std::optional<std::string> proof;
  /// The folder for plans of baselines.
  std::optional<std::string> baselines;
  /// The number of other layouts to find plans of, and the folder for these.
  std::optional<std::int64_t> alternatives;
  std::optional<std::string> alternatives_folder;
  /// Whether to search for what would change the plan's time.
  bool explains = false;
  /// Whether to bound plans over other orders of the layers.
  bool compares_orders = false;
  bool is_json = false;
};

/// Returns the table of the command's options.
std::vector<command_line::OptionSection> plan_options();

/// Reads the options. Throws Error(Usage).
PlanCommandRequest plan_request(const command_line::Options& options);

}  // namespace dapple::app
