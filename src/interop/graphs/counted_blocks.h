// Finds where a runtime recomputes other layers than a plan: every n-th transformer block of all
// stages of a device, which it counts one stage after another, where the plan has every n-th layer
// of each stage.
#pragma once

#include <optional>
#include <string_view>

#include "dapple/core/error.h"
#include "dapple/plan/plan.h"
#include "dapple/profile/model_profile.h"

namespace dapple::interop {

/// Returns the place in the plan and what was expected there if every n-th layer of some stage is
/// another one for the runtime; nothing where all layers recompute, or the first ones. O(layers log
/// layers). Requires: the profile is in the plan's form.
std::optional<Violation> count_fault(std::string_view runtime, const ModelProfile& profile,
                                     const Plan& plan);

}  // namespace dapple::interop
