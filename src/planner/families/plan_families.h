// Planning over several schedule families: compares the plan of the 1F1B planner with the best
// plans of the other families.
#pragma once

#include <variant>

#include "dapple/planner/request/planner.h"
#include "planner/baselines/baseline_search.h"

namespace dapple::planner {

/// The families beyond 1F1B and GPipe, in the order in which they are searched: those that differ
/// least from 1F1B come first.
inline constexpr ScheduleFamily kFamiliesBeyond1F1B[] = {
    ScheduleFamily::ListScheduled, ScheduleFamily::ZeroBubbleH1, ScheduleFamily::ZeroBubbleH2,
    ScheduleFamily::ZeroBubbleV,   ScheduleFamily::Interleaved,  ScheduleFamily::BreadthFirst};

/// Whether the options ask for a family beyond 1F1B and GPipe.
bool asks_for_families(const PlannerOptions& options);

/// Returns the options for the 1F1B planner, which runs first: its full search where 1F1B is among
/// the requested families, else the DAPPLE planner alone, which finds plans to start from. Returns
/// the options unchanged where no other families are requested.
PlannerOptions options_to_start(const PlannerOptions& options);

/// Returns the best plan of the requested families, with a record of each family and the least of
/// their bounds. `first` is the result of the 1F1B planner; it is one of the plans compared where
/// 1F1B is requested.
std::variant<MadePlan, Infeasible> plan_families(std::variant<MadePlan, Infeasible> first,
                                                 const PlanningProblem& problem,
                                                 Progress* progress);

}  // namespace dapple::planner
