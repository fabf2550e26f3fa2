// The restrictions that --for TARGET places on a plan so that "export --to TARGET" can express it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dapple/command_line/options.h"
#include "dapple/plan/document.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/profile/context_exchanges.h"
#include "dapple/profile/model_profile.h"

namespace dapple::app {

/// Returns the names of the targets that cannot express every plan, and dapple-exec.
std::vector<std::string> limited_targets();

/// Returns the target or runtime that is called by this name or by that of its framework,
/// "megatron" for "megatron-lm"; any other name is returned as it is.
std::string target_named(const std::string& name);

/// Returns the target_named() by the option's value. Throws Error(Usage) if it is none of the
/// option's choices.
std::string target_given(const command_line::Options& options, const std::string& option);

/// Returns the framework of topologies/gpus.json that the target is called, "megatron-lm" for
/// "megatron"; any other name is returned as it is.
std::string framework_of_target(const std::string& target);

/// Returns how context-parallel ranks may exchange keys and values in plans for the target.
ContextExchanges context_exchanges_of(const std::string& target);

/// Returns the restriction of a target; nothing for dapple-exec, of which the options for the
/// planner say what it lacks. Throws Error(Usage) if no target with limits has that name or if
/// other options request what it cannot express, and Error(BadInput) if it cannot run the model at
/// all.
std::optional<planner::PlanRestriction> restriction_of(const std::string& target,
                                                       const planner::PlannerOptions& planner,
                                                       const ModelProfile& profile);

/// Returns the restriction of the target that a plan was requested for, as the version that made
/// the plan had it; nothing if it was requested for none. Throws Error(BadInput), naming `source`,
/// if the file's target is invalid.
std::optional<planner::PlanRestriction> restriction_in(const PlanDocument& document,
                                                       const std::string& source);

}  // namespace dapple::app
