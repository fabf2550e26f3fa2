// The order of a plan's ranks beside the one that a launcher gives.
#pragma once

#include <optional>
#include <string>

#include "app/request/inputs.h"

namespace dapple::app {

/// What the plan would lose with its ranks on the same devices in the order of their numbers, as
/// launchers number them: "an iteration takes 1.2 s in place of 1 s", or that it does not fit.
/// Nothing where they stand so, or where that makes no difference. O(a simulation).
std::optional<std::string> loss_in_launchers_order(const Subject& subject);

}  // namespace dapple::app
