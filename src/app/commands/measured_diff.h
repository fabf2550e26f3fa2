// A plan beside what was measured of it.
#pragma once

#include <string>

#include "dapple/command_line/console.h"
#include "dapple/command_line/options.h"

namespace dapple::app {

/// A timeline's file, read already.
struct MeasuredFile {
  std::string path;
  std::string text;
};

/// Writes how the measured timeline differs from the plan's simulated one. Throws Error(BadInput)
/// where it is not that plan's.
int diff_measured(const std::string& plan_path, const MeasuredFile& measured,
                  const command_line::Options& options, command_line::Console& console);

}  // namespace dapple::app
