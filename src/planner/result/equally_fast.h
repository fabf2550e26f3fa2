// Which of the plans that take equally long is chosen.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "dapple/planner/candidates/score.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/result/made_plan.h"

namespace dapple::planner {

struct EquallyFast {
  SimulatedPlan chosen;
  /// The plan of one stage that needs the least memory, if that is noticeably less than the chosen
  /// one's, which has one stage too.
  std::optional<FrugalPlan> frugal = {};
  /// The number of simulations.
  std::int64_t simulated = 0;
};

/// Chooses among the plans of `known` that take as long as the first one on as many devices and,
/// where that has one stage, the same stage with other micro-batches or ways of dividing them, on
/// which the time of such a plan often does not depend: first the plan that leans least on batches
/// below the measured ones, then the one of least peak memory, then the first. Warm-up depths of
/// the fullest stages are lowered as long as the plan takes no longer. Simulations take a fixed
/// number of actions in sum; once `should_stop` returns true, no further one is begun. The result
/// is not proven to need the least memory of all plans that are as fast. Requires: `known` has a
/// plan.
EquallyFast choose_equally_fast(const PlanningContext& context,
                                const std::vector<SimulatedPlan>& known,
                                const std::function<bool()>& should_stop);

}  // namespace dapple::planner
