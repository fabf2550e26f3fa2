// The DAPPLE planner: simulates, at several depths, even splits and the best candidates of the
// dynamic programming of search/dapple_search/dapple_search.h, which runs at two widths.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dapple/plan/document.h"
#include "dapple/planner/request/planner_options.h"
#include "planner/baselines/baseline_search.h"
#include "planner/candidates/candidate_evaluator.h"

namespace dapple::planner {

/// With more devices than this, the DAPPLE planner does not try every number of replicas.
inline constexpr std::int32_t kFewDevices = 16;

struct DapplePlans {
  // The best few plans, best first; empty where none that fits was found.
  std::vector<SimulatedPlan> best;
  SearchRecord record;
};

/// Runs the DAPPLE planner. Deterministic, unless stopped.
DapplePlans plan_by_dapple(const PlanningContext& context);

/// Returns the best of these plans as the baseline "dapple"; nothing where there is none.
std::optional<BaselinePlan> baseline_of(const DapplePlans& dapple, const PlanningContext& context);

}  // namespace dapple::planner
