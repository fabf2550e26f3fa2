// Which schedule families the options ask for, and the options of the search that comes first.
#pragma once

#include "dapple/planner/request/planner_options.h"

namespace dapple::planner {

/// Whether the options ask for a family beyond 1F1B and GPipe.
bool asks_for_families(const PlannerOptions& options);

/// Returns the options for the 1F1B planner, which runs first: its full search where 1F1B is among
/// the requested families, else the DAPPLE planner alone, which finds plans to start from. Returns
/// the options unchanged where no other families are requested.
PlannerOptions options_to_start(const PlannerOptions& options);

}  // namespace dapple::planner
