// Compares the order of a plan's ranks with that in which launchers number processes.
#pragma once

#include <optional>
#include <string>

#include "app/request/inputs.h"

namespace dapple::app {

/// Returns what the plan would lose if its ranks were assigned to the same devices in ascending
/// order, as launchers do: "an iteration takes 1.2 s instead of 1 s", or that it does not fit.
/// Returns nothing if they are in that order, or if it makes no difference. O(a simulation).
std::optional<std::string> loss_in_launchers_order(const Subject& subject);

}  // namespace dapple::app
