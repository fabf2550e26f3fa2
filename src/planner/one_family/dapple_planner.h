// The DAPPLE planner: even splits, the dynamic programming of search/dapple_search/dapple_search.h
// at two widths, and the best of what it finds simulated at several depths.
#pragma once

#include <optional>
#include <vector>

#include "dapple/plan/document.h"
#include "dapple/planner/request/planner.h"
#include "planner/baselines/baseline_search.h"
#include "planner/candidates/candidate_evaluator.h"

namespace dapple::planner {

struct DapplePlans {
  std::vector<SimulatedPlan>
      best;  // the best few, best first; empty where it finds nothing that fits
  SearchRecord record;
};

/// Deterministic, unless stopped.
DapplePlans plan_by_dapple(const ModelProfile& profile, const Topology& topology,
                           const PlannerOptions& options, Progress* progress);

/// The best of them as the baseline "dapple"; nothing where there is none.
std::optional<BaselinePlan> baseline_of(const DapplePlans& dapple, const PlanningProblem& problem);

}  // namespace dapple::planner
