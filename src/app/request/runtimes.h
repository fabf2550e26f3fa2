// The runtime that a plan is made for or simulated with, by --runtime.
#pragma once

#include <optional>
#include <string>

#include "dapple/command_line/options.h"
#include "dapple/plan/document.h"
#include "dapple/plan/runtime.h"

namespace dapple::app {

/// Returns the row of --runtime.
command_line::OptionSpec runtime_option(const std::string& text);

/// Returns the runtime of that name that the program knows, or that the file describes; nothing
/// without a name. Throws Error(Usage) for a name that is neither, and Error(BadInput).
std::optional<Runtime> runtime_of(const std::optional<std::string>& name);

/// Gives the devices of a topology what the runtime keeps in memory. Throws Error(BadInput) for a
/// device that has no more.
void reserve(const Runtime& runtime, TopologyDescription& topology);

/// Makes the plan of a document one that a runtime executes, with the depths that it has.
void run_on(const Runtime& runtime, PlanDocument& document);

/// Throws Error(BadInput) naming `source` for a plan that cannot be simulated in a mode.
void check_mode(const Plan& plan, SimulationMode mode, const std::string& source);

}  // namespace dapple::app
