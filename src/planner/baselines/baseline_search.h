// Finds the best plan of one baseline. Candidates are simulated at several depths in steps of
// rising lower bound, those that take the least to simulate first within a step, until no other
// candidate can be faster.
#pragma once

#include <functional>
#include <string>

#include "dapple/planner/baselines/baselines.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/search/dapple_search/dapple_search.h"

namespace dapple::planner {

/// Makes a baseline of a simulated plan. Where memory is ignored, the plan counts as feasible.
/// Requires: the plan has its gradient buckets and takes `iteration`.
BaselinePlan as_baseline(std::string name, Plan plan, Duration iteration,
                         const PlanningContext& context);

/// Drops the layer tables of earlier candidates where they take more than their part of the memory
/// limit; each micro-batch size has tables of its own.
void make_room(const CostModel& costs, const PlannerOptions& options);

/// The candidates of one baseline, each at any depths, with recomputation on all stages or on none.
struct BaselineFamily {
  std::string name;
  ScheduleFamily schedule = ScheduleFamily::OneFOneB;
  // Only faster plans are looked for.
  Duration to_beat = Duration::infinite();
  std::size_t count = 0;
  // Makes the candidate of a number below `count`, without recomputation.
  std::function<search::Candidate(std::size_t)> candidate;
};

/// Returns the fastest plan that fits; of equals, the first in simulation order
/// (planner/candidates/simulation_order.h). Where none fits, returns the one that lacks the least
/// memory at its smallest depths, unless `to_beat` is finite. Returns nothing without candidates
/// that are short enough to simulate, or where the search was stopped before it had a plan: once
/// `should_stop` returns true, it ends with what it has. Deterministic, unless stopped: what is
/// left untried on large problems depends on simulated actions, not on time.
std::optional<BaselinePlan> best_of(const BaselineFamily& family, const PlanningContext& context,
                                    const std::function<bool()>& should_stop);

}  // namespace dapple::planner
