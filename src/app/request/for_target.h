// What --for TARGET asks of a plan, so that "export --to TARGET" can express it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dapple/command_line/options.h"
#include "dapple/planner/request/planner.h"
#include "dapple/planner/request/restricted.h"
#include "dapple/profile/model_profile.h"

namespace dapple::app {

/// The restriction of --for; nothing where it is not given. Throws Error(Usage) where the target
/// can express every plan, or where other options ask for what it cannot, and Error(BadInput) where
/// it cannot run the model at all.
std::optional<planner::PlanRestriction> restriction_of(const command_line::Options& options,
                                                       const planner::PlannerOptions& planner,
                                                       const ModelProfile& profile);

/// The same of the target of that name. Throws Error(Usage) where no target with limits has it.
planner::PlanRestriction restriction_of(const std::string& target,
                                        const planner::PlannerOptions& planner,
                                        const ModelProfile& profile);

}  // namespace dapple::app
