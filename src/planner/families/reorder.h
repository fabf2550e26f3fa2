// A plan under another schedule, without its figures: what reschedule() evaluates, and what a
// planner tries many of.
#pragma once

#include <optional>
#include <variant>

#include "dapple/cost/cost_model.h"
#include "dapple/plan/plan.h"
#include "dapple/planner/families/reschedule.h"

namespace dapple::planner {

struct Reordered {
  Plan plan;
  std::optional<Duration> iteration;    // where the order was searched
  std::optional<Duration> lower_bound;  // as Rescheduled has it
  bool is_stopped = false;              // likewise
  OrderEffort effort;
};

/// As reschedule(), with the plan's devices and links in `costs`. Only where the family carries its
/// order is the plan sure to fit memory. Requires: as reschedule().
std::variant<Reordered, NoSchedule> reorder(const Plan& plan, const CostModel& costs,
                                            const Reschedule& options);

}  // namespace dapple::planner
