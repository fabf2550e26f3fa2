// A plan over schedule families: what the planner of 1F1B made, and what the others have to offer.
#pragma once

#include <variant>

#include "dapple/planner/request/planner.h"
#include "planner/baselines/baseline_search.h"

namespace dapple::planner {

/// In the order in which they are searched: what changes least comes first.
inline constexpr ScheduleFamily kFamiliesBeyond1F1B[] = {
    ScheduleFamily::ListScheduled, ScheduleFamily::ZeroBubbleH1, ScheduleFamily::ZeroBubbleH2,
    ScheduleFamily::ZeroBubbleV,   ScheduleFamily::Interleaved,  ScheduleFamily::BreadthFirst};

/// Whether options ask for more than 1F1B and GPipe.
bool asks_for_families(const PlannerOptions& options);

/// The planner of 1F1B as it is to be asked first: all of it where its plans are among those asked
/// for, else as little as finds plans to start from. The options themselves where no other families
/// are asked for.
PlannerOptions options_to_start(const PlannerOptions& options);

/// The best plan of the families that are asked for, `first` included where 1F1B is, with a record
/// of each family, and the least of their bounds.
std::variant<MadePlan, Infeasible> plan_families(std::variant<MadePlan, Infeasible> first,
                                                 const PlanningProblem& problem,
                                                 Progress* progress);

}  // namespace dapple::planner
