// The search problems that the options of a plan ask for.
#pragma once

#include <vector>

#include "dapple/planner/request/planner_options.h"
#include "dapple/search/search_problem.h"

namespace dapple::planner {

/// Returns one problem for each bucket size and micro-batch size that the options leave open: by
/// bucket size, then micro-batch size.
std::vector<search::SearchProblem> search_problems(const PlanningContext& context);

}  // namespace dapple::planner
