// The exact planner: candidates of search/exact/exact_search.h simulated by rising bound until the
// bound reaches the best.
#pragma once

#include <vector>

#include "dapple/plan/document.h"
#include "dapple/planner/request/planner.h"
#include "planner/candidates/candidate_evaluator.h"

namespace dapple::planner {

struct ExactPlans {
  std::vector<SimulatedPlan> best;  // the best few, best first; empty where nothing fits
  SearchRecord record;
  Duration lower_bound;  // no plan of the searched space is faster
};

/// `known`: plans to start from, best first. Deterministic, unless stopped.
ExactPlans plan_exactly(const ModelProfile& profile, const Topology& topology,
                        const PlannerOptions& options, std::vector<SimulatedPlan> known,
                        Progress* progress);

/// No plan of one stage per device with an unsplit backward is faster, in whatever order its
/// devices work; `most` where none is below it. The exact search without what 1F1B's order adds,
/// as far as a fixed amount of work goes. Deterministic, unless stopped.
Duration bound_of_any_order(const ModelProfile& profile, const Topology& topology,
                            const PlannerOptions& options, Duration most, Progress* progress);

}  // namespace dapple::planner
