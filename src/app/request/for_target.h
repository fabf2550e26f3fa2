// The restrictions that --for TARGET places on a plan so that "export --to TARGET" can express it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dapple/command_line/options.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/profile/model_profile.h"

namespace dapple::app {

/// Returns the restriction of --for, or nothing if it is not given. Throws Error(Usage) if the
/// target can express every plan, or if other options request what it cannot express, and
/// Error(BadInput) if it cannot run the model at all.
std::optional<planner::PlanRestriction> restriction_of(const command_line::Options& options,
                                                       const planner::PlannerOptions& planner,
                                                       const ModelProfile& profile);

/// Returns the restriction of a target. Throws as above, and Error(Usage) if no target with limits
/// has that name.
planner::PlanRestriction restriction_of(const std::string& target,
                                        const planner::PlannerOptions& planner,
                                        const ModelProfile& profile);

}  // namespace dapple::app
