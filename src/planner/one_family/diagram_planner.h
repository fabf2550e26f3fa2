// The planner for spaces in which the exact search does not try all placements: it simulates the
// plans of restricted decision diagrams and proves a bound by relaxed ones
// (search/decision_diagram/decision_diagram.h).
#pragma once

#include <vector>

#include "dapple/planner/request/planner_options.h"
#include "planner/one_family/exact_planner.h"

namespace dapple::planner {

/// Whether decision diagrams of the space have few enough states. O(devices).
bool has_room_for_diagrams(const PlanningContext& context);

/// Whether the space is one for decision diagrams: the exact search does not try all placements
/// that the pins allow, or the problem is too large for it, and there is room for them. O(devices).
bool is_for_diagrams(const PlanningContext& context);

/// Runs the planner, starting from the plans in `known`, best first. The threshold rises in steps
/// from the least bound to the best plan, so that there are plans and a bound early; then the
/// diagrams become wider until the gap is closed, they no longer improve anything, or their work is
/// spent. Deterministic, unless stopped.
ExactPlans plan_by_diagrams(const PlanningContext& context, std::vector<SimulatedPlan> known);

}  // namespace dapple::planner
