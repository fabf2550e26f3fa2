// Compares a plan with a measured timeline.
#pragma once

#include <string>

#include "dapple/command_line/console.h"
#include "dapple/command_line/options.h"

namespace dapple::app {

/// A timeline file that has been read.
struct MeasuredFile {
  std::string path;
  std::string text;
};

/// Writes how the measured timeline differs from the plan's simulated one, and returns an exit
/// code. Throws Error(BadInput) if the timeline is not that of the plan.
int diff_measured(const std::string& plan_path, const MeasuredFile& measured,
                  const command_line::Options& options, command_line::Console& console);

}  // namespace dapple::app
