// Compares a plan with a measured timeline.
#pragma once

#include <optional>
#include <string>

#include "dapple/command_line/console.h"
#include "dapple/plan/simulation_mode.h"

namespace dapple::app {

/// The options of the command diff.
struct DiffRequest {
  std::string first;
  std::string second;
  std::optional<std::string> model;
  std::optional<std::string> topology;
  std::optional<Contention> contention;
  std::optional<Replicas> replicas;
  bool is_json = false;
};

/// Writes how the measured timeline, whose file has this text, differs from the simulated one of
/// the first plan, and returns an exit code. Throws Error(BadInput) if the timeline is not that of
/// the plan.
int diff_measured(const DiffRequest& request, const std::string& text,
                  command_line::Console& console);

}  // namespace dapple::app
