// Bounds on how a stage's all-reduces and its last gradients slow each other down on shared links
// ((B12) in docs/bounds.md).
//
// When the last backward of a stage ends, its all-reduces are under way, and the gradients of the
// last micro-batch leave for the stage in front through the same ports. When one of the two is done
// with a port, either the port has carried both, or the other one has had its fair share of the
// port all the time, except while an all-reduce pauses between rounds or is busy with phases that
// do not use the port. At that time no activations and no gradients of later stages are in transit,
// and no earlier stage has begun to reduce, so the number of flows that may share a port is known,
// and with it the least share of each.
// Source: max-min fairness, by which the simulator shares links (simulate/max_min.h). The bound
// itself has no published source.
#pragma once

#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/plan/simulation_mode.h"

namespace dapple::search {

/// Lower bounds on two times that are counted from the end of a stage's last backward.
///
/// | member         | symbol, docs/bounds.md | unit | equations              |
/// | -------------- | ---------------------- | ---- | ---------------------- |
/// | gradient       | d_last                 | ns   | (B12), (B2), (B7)      |
/// | after_backward | A_next                 | ns   | (B12), (B8), (B9)      |
struct LastSending {
  /// Until the last gradients have arrived at the stage in front.
  Duration gradient;
  /// Until the end of the optimizer step.
  Duration after_backward;
};

/// Whether the flows beside the last gradients are known: links are shared, but not with
/// collectives of passes, which slow transfers down and let reductions progress meanwhile.
/// O(replicas).
bool are_last_flows_known(Contention contention, const PlanCost& costs);

/// Returns these bounds by stage; those of the first stage are zero. If all-reduces slow
/// computation down, or the stage has nothing to reduce, they are the times of each on idle links.
/// O(flows and ports of all transfers and reductions, times log flows), because the numbers of
/// flows that may share a port are carried from stage to stage.
/// Requires: no dealt stage, and are_last_flows_known().
std::vector<LastSending> last_sendings(const PlanCost& costs, const Topology& topology);

}  // namespace dapple::search
