// Searches for better warm-up depths by small changes that may at first make a plan slower, as the
// best depths often differ at several stages from those that a single improving step reaches.
//
// Source: threshold accepting (Dueck and Scheuer 1990): a change is accepted if it costs no more
// than an allowance, which shrinks to zero.
#pragma once

#include <cstdint>
#include <functional>

#include "dapple/cost/cost_model.h"
#include "dapple/planner/candidates/score.h"
#include "dapple/planner/request/planner_options.h"

namespace dapple::planner {

/// The limits of the search: the number of simulated actions, which the last simulation may exceed,
/// and when to stop.
struct ThresholdAcceptingLimits {
  std::int64_t actions = 0;
  const std::function<bool()>& should_stop;
};

/// Whether stages are so deep that a step to neighbouring depths changes little. False where a
/// stage deals its micro-batches.
bool is_deep(const Plan& plan);

/// Returns the best depths visited on the way from those of `start`. Where stages are deep, walks
/// that follow the bound of depths come first, for up to half of the actions. Deterministic, unless
/// stopped. Requires: a 1F1B plan with depths that fit.
Score threshold_accepting(const SimulatedPlan& start, const CostModel& costs,
                          const PlannerOptions& options, const ThresholdAcceptingLimits& limits);

/// Returns the best plan visited on the way from `start` over plans with other boundaries between
/// its stages, and other depths where `options` leave them free; devices stay as they are.
/// Deterministic, unless stopped. Requires: a 1F1B or GPipe plan with depths that fit.
Score threshold_accepting_of_stages(const SimulatedPlan& start, const CostModel& costs,
                                    const PlannerOptions& options,
                                    const ThresholdAcceptingLimits& limits);

}  // namespace dapple::planner
