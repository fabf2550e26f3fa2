// The plan that needs the least memory, for requests for which no search finds one: whether any
// plan fits, how far off the closest is, and what would help.
#pragma once

#include <cstdint>
#include <functional>
#include <variant>

#include "dapple/cost/cost_model.h"
#include "dapple/planner/request/planner.h"
#include "dapple/search/allowance.h"
#include "dapple/search/dapple_search/dapple_search.h"

namespace dapple::planner {

struct LeastMemory {
  bool is_known = true;  // false: the allowance ended first, and nothing below is filled
  search::Candidate plan;
  Bytes missing;  // on its tightest device; not above zero if it fits; INT64_MAX: no plan is as
                  // pinned, and there is none here
  /// Its stages, or replicas that start on their own, where no plan that fits has few enough of
  /// them to be simulated.
  std::int64_t too_many_lanes = 0;

  bool fits(bool ignore_memory) const {
    return missing.count <= 0 || (ignore_memory && missing.count != INT64_MAX);
  }
  /// Whether it fits and can be simulated.
  bool can_run(bool ignore_memory) const { return fits(ignore_memory) && too_many_lanes == 0; }
};

/// Over all partitions and replica counts along the devices in order, recomputation as it helps,
/// one micro-batch in flight (all of them under GPipe): the plan whose tightest device lacks the
/// least, or, where that one has more stage passes than can be simulated, the one with the fewest
/// stages that fits. `devices`: as if there were so many; those beyond the topology's are like its
/// last. Only plans that are as the problem's pins say, their number of stages included.
/// The allowance is spent by stages looked at, O(layers^2 * devices * replica counts) of them,
/// times the number of stages if that is pinned.
LeastMemory least_memory(const CostModel& costs, const search::SearchProblem& problem,
                         std::int32_t devices, search::Allowance& allowance);

/// A plan that fits and can be simulated, at the smallest micro-batch size at which there is one;
/// else why there is none, and the cheapest remedy that works: where there are pins, the first one
/// without which something fits.
std::variant<search::Candidate, Infeasible> find_any_plan(const CostModel& costs,
                                                          const PlannerOptions& options,
                                                          const std::function<bool()>& should_stop);

}  // namespace dapple::planner
