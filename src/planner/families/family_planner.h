// The planner of one schedule family beyond 1F1B and GPipe. It computes a lower bound on all plans
// of the family (search/families/family_bound.h) and finds good ones, starting from shapes that the
// bound suggests and from plans of other families.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dapple/cost/memory.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/schedule_family.h"
#include "dapple/planner/request/planner_options.h"
#include "planner/baselines/baseline_search.h"
#include "planner/candidates/candidate_evaluator.h"

namespace dapple::planner {

struct FamilyRequest {
  ScheduleFamily family = ScheduleFamily::ListScheduled;
  // Plans to start from, with one stage per device and split replicas.
  std::vector<Plan> starts = {};
  // The iteration of the best plan of any family so far.
  Duration to_beat = Duration::infinite();
  // Plans with this iteration or a longer one are not searched for.
  Duration enough = Duration::infinite();
};

struct FamilyOutcome {
  // Infeasible where no plan that fits was found.
  SimulatedPlan best;
  // Lower bound on the plans of the family, at most `to_beat`; infinite where none fits.
  Duration lower_bound;
  // False where the bound shows that a search would not pay.
  bool is_searched = false;
  // Whether the search was stopped before it began.
  bool is_stopped = false;
  // The number of shapes put under the family.
  std::int64_t candidates = 0;
  std::int64_t simulated = 0;
  // The shortage of the closest plan, and that plan, where nothing fits.
  std::optional<MemoryShortage> shortage;
  Plan closest;
};

/// Plans one family. Where the bound is below `enough`, the starts and shapes for each number of
/// stages and micro-batch size are put under the family with few orders tried; the best few are
/// improved by moving layers between neighbouring stages, and the best two of those are tried with
/// the most orders. In looped families a device has two to eight stages. Shapes satisfy the pins.
/// The work is limited by tasks put in order, not by time. Deterministic, unless stopped.
FamilyOutcome plan_family(const PlanningContext& context, const FamilyRequest& request);

}  // namespace dapple::planner
