// The restrictions that --for TARGET places on a plan so that "export --to TARGET" can express it.
#pragma once

#include <string>
#include <vector>

#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/profile/model_profile.h"

namespace dapple::app {

/// Returns the names of the targets that cannot express every plan.
std::vector<std::string> limited_targets();

/// Returns the restriction of a target. Throws Error(Usage) if no target with limits has that name
/// or if other options request what it cannot express, and Error(BadInput) if it cannot run the
/// model at all.
planner::PlanRestriction restriction_of(const std::string& target,
                                        const planner::PlannerOptions& planner,
                                        const ModelProfile& profile);

}  // namespace dapple::app
