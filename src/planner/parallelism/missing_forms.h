// Refusals of requests that leave no form of parallelism.
#pragma once

#include <vector>

#include "dapple/planner/parallelism/asked_parallelisms.h"
#include "dapple/planner/request/planner_options.h"

namespace dapple::planner {

/// Throws Error(BadInput) with what of the request excludes all forms, and why: pinned degrees,
/// pinned recomputation, or sharding. Requires: none of the forms that are asked for has groups.
[[noreturn]] void refuse_without_forms(const PlanningContext& context,
                                       const std::vector<AskedParallelism>& asked);

}  // namespace dapple::planner
