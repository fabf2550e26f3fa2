// The planner of one schedule family beyond 1F1B and GPipe: a bound on all its plans
// (search/families/family_bound.h), and good plans among them, found from the shapes that the bound
// knows and from plans of other families.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dapple/cost/memory.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/schedule_family.h"
#include "dapple/planner/request/planner.h"
#include "planner/baselines/baseline_search.h"
#include "planner/candidates/candidate_evaluator.h"

namespace dapple::planner {

struct FamilyRequest {
  ScheduleFamily family = ScheduleFamily::ListScheduled;
  std::vector<Plan> starts = {};  // one stage per device, replicas split
  Duration to_beat{INT64_MAX};    // iteration of the best plan of any family so far
  Duration enough{INT64_MAX};     // plans from it on are not searched for
};

struct FamilyOutcome {
  SimulatedPlan best;  // infeasible where nothing that fits was found
  /// No plan of the family is faster, up to `to_beat`; INT64_MAX where none fits at all.
  Duration lower_bound;
  bool is_searched = false;     // not where the bound says that it would not pay
  bool is_stopped = false;      // told to stop before it was searched
  std::int64_t candidates = 0;  // shapes put under the family
  std::int64_t simulated = 0;
  std::optional<MemoryShortage> shortage;  // of the shape that comes closest, where nothing fits
  std::string closest_shape;
};

/// Whether its devices hold several stages each.
bool has_loops(ScheduleFamily family);

/// Where the bound is below what is enough: shapes by number of stages and micro-batch size, and
/// the starts, are put under the family with few orders tried, the best few are improved by moving
/// layers from stage to stage, and the best of those gets the most orders. In looped families a
/// device has two to eight stages. Work is limited by tasks put in order, not by time, so that the
/// outcome is deterministic, unless stopped. Shapes are as pinned.
FamilyOutcome plan_family(const PlanningProblem& problem, const FamilyRequest& request,
                          Progress* progress);

}  // namespace dapple::planner
