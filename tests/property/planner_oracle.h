// Every plan of a small problem, one after another: boundaries, device sets, micro-batch sizes,
// depths, recomputation. Shares only validate, cost and simulate with the planner.
#pragma once

#include <cstdint>
#include <functional>

#include "../support/random_problem.h"

namespace dapple::small {

/// Calls `visit` for every legal plan that fits. O(exponential): a handful of layers and devices.
void for_each_plan(const Problem& problem, const Topology& topology, bool ignore_memory,
                   const std::function<void(const Plan&, const PlanCost&)>& visit);

}  // namespace dapple::small
