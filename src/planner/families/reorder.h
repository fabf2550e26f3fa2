// Puts a plan under another schedule without evaluating it. reschedule() evaluates the result; the
// planner of a family tries many.
#pragma once

#include <optional>
#include <variant>

#include "dapple/cost/cost_model.h"
#include "dapple/plan/plan.h"
#include "dapple/planner/families/reschedule.h"

namespace dapple::planner {

struct Reordered {
  Plan plan;
  // The simulated iteration and the lower bound of Rescheduled, where the order was searched.
  std::optional<Duration> iteration;
  std::optional<Duration> lower_bound;
  // As in Rescheduled.
  bool is_stopped = false;
  OrderEffort effort;
};

/// Puts a plan under another schedule like reschedule(), with profile and topology from `costs`, in
/// a single search. The plan is sure to fit into memory only where the order was searched.
/// Requires: the same as reschedule().
std::variant<Reordered, NoSchedule> reorder(const Plan& plan, const CostModel& costs,
                                            const Reschedule& options);

}  // namespace dapple::planner
