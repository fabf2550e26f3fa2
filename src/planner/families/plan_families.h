// Planning over several schedule families: compares the plan of the 1F1B planner with the best
// plans of the other families.
#pragma once

#include <iterator>
#include <variant>

#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/result/infeasible.h"
#include "dapple/planner/result/made_plan.h"
#include "planner/baselines/baseline_search.h"

namespace dapple::planner {

/// The families beyond 1F1B and GPipe, in the order in which they are searched: those that differ
/// least from 1F1B come first.
inline constexpr ScheduleFamily kFamiliesBeyond1F1B[] = {
    ScheduleFamily::ListScheduled, ScheduleFamily::ZeroBubbleH1, ScheduleFamily::ZeroBubbleH2,
    ScheduleFamily::ZeroBubbleV,   ScheduleFamily::Interleaved,  ScheduleFamily::BreadthFirst};
static_assert(std::size(kFamiliesBeyond1F1B) + 3 == std::size(kScheduleFamilies),
              "every family but 1F1B, GPipe and given orders is searched here");

/// Returns the best plan of the requested families, with a record of each family and the least of
/// their bounds. `first` is the result of the 1F1B planner; it is one of the plans compared where
/// 1F1B is requested.
std::variant<MadePlan, Infeasible> plan_families(std::variant<MadePlan, Infeasible> first,
                                                 const PlanningContext& context);

}  // namespace dapple::planner
