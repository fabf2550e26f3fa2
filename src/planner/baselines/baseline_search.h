// The best plan of one baseline: candidates screened by their lower bound, simulated at several
// depths in steps of rising bound, the shortest to simulate first in each, until no other can be
// faster.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dapple/planner/request/baselines.h"
#include "dapple/planner/request/planner.h"
#include "dapple/search/dapple_search/dapple_search.h"

namespace dapple::planner {

/// What is planned, and how; outlives whoever holds it.
struct PlanningProblem {
  const ModelProfile& profile;
  const Topology& topology;
  const PlannerOptions& options;
  std::function<bool()> should_stop = {};  // once true, the search ends with what it has
};

/// A simulated plan as a baseline; whether it fits is left out where memory is not looked at.
/// Requires: the plan has its gradient buckets and takes `iteration`.
BaselinePlan as_baseline(std::string name, Plan plan, Duration iteration,
                         const PlanningProblem& problem);

/// Forgets the layer tables of earlier candidates where they take more than their part of the
/// memory limit: each size of micro-batch has its own.
void make_room(const CostModel& costs, const PlannerOptions& options);

/// Plans of one family, each at any depths and recomputing or not on all stages.
struct BaselineFamily {
  std::string name;
  ScheduleFamily schedule = ScheduleFamily::OneFOneB;
  std::size_t count = 0;
  std::function<search::Candidate(std::size_t)> candidate;  // not recomputing; one of `count`
};

/// The fastest that fits, or of equals the first by micro-batches and bound; where none fits, the
/// one that lacks the least memory at its smallest depths. Nothing without candidates that are
/// short enough to simulate, or where the search was stopped before it had a plan. Deterministic:
/// what large problems leave untried is limited by simulated actions, not by time.
std::optional<BaselinePlan> best_of(const BaselineFamily& family, const PlanningProblem& problem);

}  // namespace dapple::planner
