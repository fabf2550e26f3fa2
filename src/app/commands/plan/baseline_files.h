// Writes the plans of the baselines, one file each.
#pragma once

#include <string>
#include <vector>

#include "app/request/inputs.h"
#include "dapple/command_line/console.h"
#include "dapple/planner/result/made_plan.h"

namespace dapple::app {

/// Adds the files that write_baselines() may write, as add_folder_outputs() does.
void add_baseline_outputs(const std::string& directory,
                          std::vector<command_line::NamedPath>& outputs);

/// Adds each baseline as a plan file of its own, NAME.plan.json, simulated like the plan. Baselines
/// that do not fit are included, with a warning that says how much memory is missing. The directory
/// is made if necessary.
void write_baselines(const std::string& directory, const planner::MadePlan& made,
                     const Topology& topology, command_line::Results& results);

}  // namespace dapple::app
