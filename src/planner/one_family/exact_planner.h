// The exact planner: simulates the candidates of search/exact/exact_search.h by rising lower bound
// until the bound reaches the best plan.
#pragma once

#include <vector>

#include "dapple/plan/document.h"
#include "dapple/planner/request/planner_options.h"
#include "planner/candidates/candidate_evaluator.h"

namespace dapple::planner {

struct ExactPlans {
  // The best few plans, best first; empty where none that fits was found.
  std::vector<SimulatedPlan> best;
  SearchRecord record;
  // Lower bound on the iteration of every plan of the space.
  Duration lower_bound;
  // The same for each search problem of the space, in the order of search_problems(); none if it is
  // not known by problem.
  std::vector<Duration> bounds = {};
};

/// The plans and the bounds from which the exact planner starts.
struct KnownPlans {
  // Best first.
  std::vector<SimulatedPlan> best;
  // Lower bounds on the iteration of every plan of each search problem, in the order of
  // search_problems(), or none.
  std::vector<Duration> bounds = {};
  // The planner takes one of so many parts of its budgets.
  std::int64_t part = 1;
  // Whether decision diagrams come first if part of the search would take too long.
  bool may_use_diagrams = false;
};

/// Runs the exact planner. Deterministic, unless stopped.
ExactPlans plan_exactly(const PlanningContext& context, KnownPlans known);

/// Returns a lower bound, at most `most`, on every plan with one stage per device and unsplit
/// backwards, in whatever order its devices compute. It is (F9): the exact search without the
/// bounds that hold for the order of 1F1B only, up to a fixed amount of work, of which `all_states`
/// are the states of all searches together. Deterministic, unless stopped.
Duration bound_of_any_order(const PlanningContext& context, Duration most, std::int64_t all_states);

}  // namespace dapple::planner
