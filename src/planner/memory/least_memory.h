// Finds the plan that needs the least memory, for requests for which no search finds a plan:
// whether any plan fits, how much memory the closest one lacks, and what would help.
#pragma once

#include <cstdint>
#include <functional>
#include <variant>

#include "dapple/cost/cost_model.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/result/infeasible.h"
#include "dapple/search/allowance.h"
#include "dapple/search/dapple_search/dapple_search.h"

namespace dapple::planner {

struct LeastMemory {
  // False where the allowance ended first; then nothing below is filled in.
  bool is_known = true;
  search::Candidate plan;
  // The bytes missing on the tightest device of the plan: zero or less if it fits, infinite if no
  // plan satisfies the pins, and `plan` is empty.
  Bytes missing;
  // The number of stages, or of independent replicas, of the plan, where no plan that fits has few
  // enough of them to be simulated; else 0.
  std::int64_t too_many_lanes = 0;

  bool fits(bool ignore_memory) const {
    return missing.count <= 0 || (ignore_memory && !missing.is_infinite());
  }
  /// Whether it fits and can be simulated.
  bool can_run(bool ignore_memory) const { return fits(ignore_memory) && too_many_lanes == 0; }
};

/// Returns the plan whose tightest device lacks the least memory or, where that plan has more stage
/// passes than can be simulated, the plan with the fewest stages that fits. The search is over all
/// partitions and replica counts along the devices in order, with recomputation where it helps and
/// one micro-batch in flight (all of them under GPipe), as far as they satisfy the problem's pins,
/// the number of stages included. It assumes `devices` devices; those beyond the topology's are
/// like its last one. It spends one unit of the allowance for each stage examined,
/// O(layers^2 * devices * replica counts) of them, times the number of stages if that is pinned.
LeastMemory least_memory(const CostModel& costs, const search::SearchProblem& problem,
                         std::int32_t devices, search::Allowance& allowance);

/// Returns a plan that fits and can be simulated, at the smallest micro-batch size at which there
/// is one. Larger sizes than the smallest are tried where they may need less memory, because more
/// replicas shard the optimizer's state or, under GPipe, all samples of the batch, or where they
/// make fewer passes. Else returns why there is none, and
/// the cheapest remedy that works: where there are pins, the first pin without which some plan
/// fits.
std::variant<search::Candidate, Infeasible> find_any_plan(const CostModel& costs,
                                                          const PlannerOptions& options,
                                                          const std::function<bool()>& should_stop);

}  // namespace dapple::planner
