// The exact planner: candidates of search/exact_search.h simulated by rising bound until the bound
// reaches the best.
#pragma once

#include <vector>

#include "dapple/plan/plan.h"
#include "dapple/planner/planner.h"
#include "scoring.h"

namespace dapple {

struct ExactPlans {
  std::vector<Scored> best;  // the best few, best first; empty where nothing fits
  SearchRecord record;
  Duration lower_bound;  // no plan of the searched space is faster
};

/// `known`: plans to start from, best first. Deterministic, unless stopped.
ExactPlans plan_exactly(const ModelProfile& profile, const Topology& topology,
                        const PlannerOptions& options, std::vector<Scored> known,
                        Progress* progress);

}  // namespace dapple
