// Better warm-up depths by small changes that may at first make a plan slower: the best depths
// often differ at several stages from any that a single step leads to.
//
// Source: threshold accepting (Dueck and Scheuer 1990): a change is taken that costs no more than
// an allowance, which shrinks to nothing.
#pragma once

#include <cstdint>
#include <functional>

#include "dapple/cost/cost_model.h"
#include "dapple/planner/candidates/score.h"
#include "dapple/planner/request/planner.h"

namespace dapple::planner {

/// How far to go: so many simulated actions, and one simulation more, or until told to stop.
struct ThresholdAcceptingLimits {
  std::int64_t actions = 0;
  const std::function<bool()>& should_stop;
};

/// The best depths met on the way from those of `start`. Deterministic, unless stopped. Requires:
/// depths that fit, a 1F1B plan.
Score threshold_accepting(const SimulatedPlan& start, const CostModel& costs,
                          const PlannerOptions& options, const ThresholdAcceptingLimits& limits);

}  // namespace dapple::planner
