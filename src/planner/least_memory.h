// The plan that needs the least memory, for requests that nothing fits: how far off the closest
// plan is, and what would help.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dapple/cost/costs.h"
#include "dapple/plan/plan.h"
#include "dapple/planner/planner.h"
#include "dapple/search/dapple_search.h"

namespace dapple {

struct LeastMemory {
  Candidate plan;
  Bytes missing;  // on its tightest device; not above zero if it fits; INT64_MAX: no plan is as
                  // pinned, and there is none here
};

/// Over all partitions and replica counts along the devices in order, recomputation as it helps,
/// one micro-batch in flight (all of them under GPipe): the plan whose tightest device lacks the
/// least. `devices`: as if there were so many; those beyond the topology's are like its last. Only
/// plans that are as the problem's pins say, their number of stages included.
/// O(layers^2 * devices * replica counts), times the number of stages if that is pinned.
LeastMemory least_memory(const CostModel& costs, const SearchProblem& problem,
                         std::int32_t devices);

/// The same at the micro-batch size that needs the least: the smallest that has a sample for each
/// of the pinned replicas, or the largest there is. Requires: sizes ascending, not empty.
LeastMemory least_memory(const CostModel& costs, const PlannerOptions& options,
                         const std::vector<std::int64_t>& micro_batch_sizes);

/// What is wrong with a request that nothing fits, and the cheapest remedy that works: where there
/// are pins, the first one without which something fits.
Infeasible explain_infeasible(const CostModel& costs, const PlannerOptions& options,
                              const std::vector<std::int64_t>& micro_batch_sizes);

}  // namespace dapple
