// The plans of the baselines, a file each.
#pragma once

#include <string>
#include <vector>

#include "app/request/inputs.h"
#include "dapple/command_line/console.h"
#include "dapple/planner/request/planner.h"

namespace dapple::app {

/// Adds the files that write_baselines() may write to, for check_outputs(). A directory that is not
/// there has no files yet: then only its parent is looked at. Throws Error(Usage) for "-" and
/// Error(Environment) where the directory could not be made.
void add_baseline_outputs(const std::string& directory,
                          std::vector<command_line::NamedPath>& outputs);

struct BaselineGround {
  const Topology& topology;
  SimulationMode mode = {};
};
/// Adds each baseline as a plan document of its own, NAME.plan.json. One that does not fit is there
/// too, with a warning that says what it lacks. The directory is made if it is not there.
void write_baselines(const std::string& directory, const planner::MadePlan& made,
                     const BaselineGround& ground, command_line::Results& results);

}  // namespace dapple::app
