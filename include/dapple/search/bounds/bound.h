// A lower bound on the simulated time of a plan, built from the last stage to the first, so that
// the bound of a partial plan holds for every way to complete it.
//
// Source: DAPPLE (PPoPP'21) section 4.1 writes the latency of a pipeline around a pivot stage, with
// transfers as stages of their own. Departures: 1. a recursion over stages instead of one pivot; 2.
// a lower bound at any warm-up depth up to the stage's limit, not an estimate; 3. ports are bounds
// of their own; 4. the last micro-batch has a label of its own, for the all-reduces that wait for
// it; 5. where boundaries share links, what a device sends to both its neighbours takes turns; 6.
// there the last gradients and the all-reduces of who sends them slow each other. It holds for
// unsplit backwards and micro-batches split over replicas, with or without contention.
//
// Replicas that start together take as long as the slowest. Where they are independent, each line
// but the work of one replica and the work of one port follows a micro-batch from one replica to
// another, and may claim no more than any such path takes: of a stage its quickest replica, of a
// boundary its quickest pair (least_path()). Where replicas and pairs are alike nothing is lost,
// but for departure 6 and for the ports that several pairs share.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/cost/stage.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/simulation_mode.h"

namespace dapple::search {

/// One stage, as the bound sees it: its slowest replica where they start together, else its
/// quickest.
struct StageBound {
  Duration forward;
  Duration backward;
  Duration after_backward;       // exposed all-reduce and optimizer step, at least
  std::int64_t depth_limit = 1;  // most micro-batches in flight, at most
  Duration slowest = {};         // forward and backward of one replica, if that is longer than both

  /// All that its busiest replica computes.
  Duration work(std::int64_t num_micro_batches) const {
    return num_micro_batches * std::max(forward + backward, slowest);
  }
};

/// One port of a boundary in one direction: what M transfers keep it busy for, rounded down once,
/// comes from `size` and `bandwidth`; `time` is one transfer through it.
struct PortBound {
  Bytes size;
  Bandwidth bandwidth;
  Duration time;
};

/// All transfers but one, one after another through the port, rounded down.
Duration queue_at(const PortBound& port, std::int64_t num_micro_batches);

struct BoundaryBound {
  Duration forward;  // one transfer on idle ports, at least
  Duration backward;
  Duration forward_pace;  // transfers follow each other no faster, on any path
  Duration backward_pace;
  std::vector<PortBound> forward_ports;
  std::vector<PortBound> backward_ports;
  // Where boundaries share links, and the stage behind has another one behind it: all that a device
  // of this stage sends to both sides, from the start of its first forward on, and all that it
  // receives from both, to the end of its last backward. Zero elsewhere.
  Duration sent_by_next;
  Duration received_by_next;
  // Where links are shared, the last gradients take longer than `backward`, and the stage behind
  // needs more after its last backward than its own figure says. Zero where that is not known.
  Duration last_backward;
  Duration next_after_backward;
};

/// Of the stages from some stage on, from the first start of a forward on that stage.
struct BoundLabel {
  Duration round_trip;  // of one micro-batch, there and back
  Duration last_trip;   // of the last one
  Duration span;        // to the last end of a backward on that stage
  Duration end;         // to the end of the last of their optimizer steps
  Duration tail;        // the same, from the start of the last forward on that stage

  friend bool operator==(const BoundLabel&, const BoundLabel&) = default;
};

/// The label of the last stage.
BoundLabel bound_of_last(const StageBound& stage, std::int64_t num_micro_batches);

/// The label with one more stage in front. Every part is monotone in every part of `behind`.
/// O(ports of the boundary).
BoundLabel bound_with_front(const StageBound& stage, const BoundaryBound& boundary,
                            const BoundLabel& behind, std::int64_t num_micro_batches);

/// At the plan's own depths: no simulation of the plan with these costs and replicas that start
/// together ends before, with contention or without; the second is for simulations with contention
/// only. Requires: no dealt stage.
Duration lower_bound(const Plan& plan, const PlanCost& costs, const Topology& topology);
Duration lower_bound_with_contention(const Plan& plan, const PlanCost& costs,
                                     const Topology& topology);

/// What the fixed order of 1F1B (GPipe's included) adds at just these depths, and not at any lower
/// ones: line 5 of the bound, between any two stages, for depths that differ by little, and the
/// forwards that a stage waits for before its first backward. O(stages^2). Requires: no dealt
/// stage.
Duration lower_bound_of_order(const Plan& plan, const PlanCost& costs);

/// What the least path through a plan takes whose replicas are independent: of every stage the
/// quickest replica's forward, backward and exposed all-reduce (as one bucket), of every boundary
/// the quickest pair's transfer, on one port. Any path through replicas and pairs takes as long or
/// longer, so with these costs the bounds of this module that follow paths hold for such plans; for
/// a stage of one replica they are its own. O(replicas + flows). Requires: no dealt stage.
PlanCost least_path(const PlanCost& costs);

/// A plan and how it is simulated.
struct BoundedPlan {
  const Plan& plan;
  const PlanCost& costs;
  const Topology& topology;
  SimulationMode mode = {};
};

/// Whether its replicas are independent and paths through them may differ.
bool follows_least_path(const BoundedPlan& bounded);

/// The bounds above, whichever hold in that mode. Requires: no dealt stage.
Duration lower_bound(const BoundedPlan& bounded);
Duration lower_bound_of_order(const BoundedPlan& bounded);

/// How long a stage's all-reduces stick out after its last backward, if links are idle: bucket k
/// starts when it is ready and the one before it is done.
Duration exposed_all_reduce(const StageCost& stage);

/// The same until its optimizer steps are done, all at the end or bucket by bucket.
Duration time_after_last_backward(const StageCost& stage);

}  // namespace dapple::search
