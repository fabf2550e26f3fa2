// Better warm-up depths by small changes that may at first make a plan slower: the best depths
// often differ at several stages from any that a single step leads to.
//
// Source: threshold accepting (Dueck and Scheuer 1990): a change is taken that costs no more than
// an allowance, which shrinks to nothing.
#pragma once

#include <cstdint>

#include "dapple/cost/costs.h"
#include "dapple/planner/planner.h"
#include "dapple/planner/score.h"

namespace dapple {

/// The best depths met on the way from those of `start`, on which `budget` actions are simulated at
/// most, and one simulation more. Deterministic. Requires: depths that fit, a 1F1B plan.
Score walk_depths(const Scored& start, const CostModel& costs, const PlannerOptions& options,
                  std::int64_t budget);

}  // namespace dapple
