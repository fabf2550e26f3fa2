// What a stage's all-reduces and its last gradients, which leave at the same time, cost each other
// where links are shared.
//
// When the last backward of a stage ends, its all-reduces are under way, and the gradients of the
// last micro-batch set off to the stage before it through the same ports. Either the port has
// carried both once one of them is done, or the other one has had its fair share of the port all
// the while, but for an all-reduce's pauses between its rounds and its phases elsewhere. By then no
// activation is on its way any more, nor a gradient of a later stage, nor has an earlier stage
// begun to reduce; so few flows share a port, and each has its part of it. Source: max-min
// fairness, as the simulator shares links (simulate/max_min.h); the bound is ours.
#pragma once

#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/cost/plan_cost.h"

namespace dapple::search {

/// Both at least, from the end of the stage's last backward.
struct LastSending {
  Duration gradient;        // until the stage before it has the last gradients
  Duration after_backward;  // until the end of its optimizer step
};

/// By stage, the first one's left at zero. With nothing but what is said above; where an all-reduce
/// slows computation down, or the stage has nothing to reduce, what each takes alone.
/// Requires: no dealt stage. O(flows and ports of all transfers and reductions, times log flows):
/// how many flows may share a port is carried from stage to stage.
std::vector<LastSending> last_sendings(const PlanCost& costs, const Topology& topology);

}  // namespace dapple::search
