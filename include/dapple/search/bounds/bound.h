// A lower bound on the simulated time of a plan. It is built from the last stage to the first, so
// the bound of a partial plan holds for every completion of it. docs/bounds.md states and proves
// all of its equations, which comments cite as (B1) and so on.
//
// Source: DAPPLE (PPoPP'21) section 4.1 writes the latency of a pipeline around a pivot stage, with
// transfers as stages of their own. Departures: 1. the bound is a recursion over stages instead of
// a formula around one pivot; 2. it is a lower bound at any warm-up depth up to the stage's limit,
// not an estimate; 3. each port has a bound of its own; 4. the last micro-batch has a component of
// its own in the label, because the all-reduces wait for it; 5. where boundaries share links, a
// device's transfers to its two neighbours are serialised; 6. where they do, the last gradients and
// the all-reduces of the stage that sends them slow each other down. The bound holds for unsplit
// backwards and for micro-batches split over replicas, with or without contention.
//
// Replicas that start together take as long as the slowest one. If they are independent, every
// equation but the work of one replica and the work of one port follows a micro-batch from replica
// to replica. It may then count no more than the least such path takes: the quickest replica of a
// stage and the quickest pair of replicas of a boundary (least_path()). Where all replicas and all
// pairs are alike nothing is lost by this, except departure 6 and ports that several pairs share.
//
// A stage that deals its micro-batches has the figures of its quickest replica as well, and in all
// equations of its own the micro-batches of its busiest one in place of all (docs/bounds.md,
// section 3).
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/cost/stage.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/simulation_mode.h"

namespace dapple::search {

/// The figures of one stage that the bound uses: those of its slowest replica where replicas start
/// together, and of its quickest one where they are independent (R1).
///
/// | member         | symbol, docs/bounds.md | unit | equations                       |
/// | -------------- | ---------------------- | ---- | ------------------------------- |
/// | forward        | F                      | ns   | (B1) to (B4), (B6) to (B9)      |
/// | backward       | B                      | ns   | (B1) to (B4), (B6) to (B9)      |
/// | after_backward | A                      | ns   | (B8), (B9), (B11)               |
/// | depth_limit    | K                      | 1    | (B3), (B9), (B10)               |
/// | slowest        | largest F_i + B_i      | ns   | (B1), (R2)                      |
/// | work()         | W                      | ns   | (B1)                            |
struct StageBound {
  Duration forward;
  Duration backward;
  /// Lower bound on the time from the end of the last backward to the end of the optimizer step.
  Duration after_backward;
  /// Upper bound on the number of micro-batches in flight.
  std::int64_t depth_limit = 1;
  /// Forward plus backward of the slowest replica; it counts where it exceeds forward + backward.
  Duration slowest = {};

  /// The computation time of the busiest replica over all micro-batches (B1), (R2).
  Duration work(std::int64_t num_micro_batches) const {
    return num_micro_batches * std::max(forward + backward, slowest);
  }
};

/// One port of a boundary in one direction.
///
/// | member    | symbol, docs/bounds.md | unit | equations        |
/// | --------- | ---------------------- | ---- | ---------------- |
/// | size      | size_p                 | B    | (B4), (B6), (B9) |
/// | bandwidth | bw_p                   | B/s  | (B4), (B6), (B9) |
/// | time      | time_p                 | ns   | (B4), (B9)       |
struct PortBound {
  /// Bytes of one micro-batch. The time for which several transfers occupy the port is computed
  /// from `size` and `bandwidth` and rounded down once.
  Bytes size;
  Bandwidth bandwidth;
  /// Time of one transfer through the port, latency included.
  Duration time;
};

/// Returns Q_p of (B4) and (B9): how long all transfers but one occupy the port one after another,
/// rounded down.
Duration queue_at(const PortBound& port, std::int64_t num_micro_batches);

/// Returns the largest Q_p + time_p of some ports; zero if there is none. O(ports).
Duration longest_queue(const std::vector<PortBound>& ports, std::int64_t num_micro_batches);

/// Lower bounds for the boundary behind a stage. All durations are lower bounds.
///
/// | member              | symbol, docs/bounds.md | unit | equations               |
/// | ------------------- | ---------------------- | ---- | ----------------------- |
/// | forward             | c                      | ns   | (B2), (B4), (B6)-(B9)   |
/// | backward            | d                      | ns   | (B2), (B4), (B6), (B7)  |
/// | forward_pace        | pace                   | ns   | (C3), (O1) to (O3)      |
/// | backward_pace       | pace_back              | ns   | (O2)                    |
/// | forward_queue       | largest Q_p + time_p   | ns   | (B4), (B9)              |
/// | backward_queue      | largest Q_p + time_p   | ns   | (B4)                    |
/// | sent_by_next        | X_out                  | ns   | (B6)                    |
/// | received_by_next    | X_in                   | ns   | (B6)                    |
/// | last_backward       | d_last                 | ns   | (B2), (B7), (B12)       |
/// | next_after_backward | A_next                 | ns   | (B8), (B9), (B12)       |
/// | occupied            | o                      | ns   | (B13)                   |
struct BoundaryBound {
  /// One transfer on idle ports.
  Duration forward;
  Duration backward;
  /// The interval between consecutive transfers on any path.
  Duration forward_pace;
  Duration backward_pace;
  /// All micro-batches through the port that takes longest for them, latency included.
  Duration forward_queue;
  Duration backward_queue;
  /// Where boundaries share links and the stage behind this boundary is not the last one: the time
  /// from the start of the first forward of that stage until one of its devices has sent everything
  /// to both neighbours, and the time from when the device begins to receive until the end of the
  /// last backward of the stage, by when it has received everything from both. Otherwise zero.
  Duration sent_by_next;
  Duration received_by_next;
  /// Where links are shared, the last gradients may take longer than `backward`, and the stage
  /// behind may need longer after its last backward than its own `after_backward`. Zero if unknown.
  Duration last_backward;
  Duration next_after_backward;
  /// Where transfers block, how long those of one micro-batch keep both stages from computing;
  /// otherwise zero.
  Duration occupied;
};

/// Returns o of (B13) from c and d.
Duration occupied_by(Transfers transfers, Duration forward, Duration backward);

/// The label of a partial plan that consists of some stage and all stages behind it. All components
/// are lower bounds; the moments are counted from the start of the first forward on that stage.
///
/// | member     | symbol | unit | computed by            | serves                  |
/// | ---------- | ------ | ---- | ---------------------- | ----------------------- |
/// | round_trip | RT     | ns   | (B7)                   | (B3), (B4), (C1), (O4)  |
/// | last_trip  | LT     | ns   | (B7)                   | (B3), (B8)              |
/// | span       | V      | ns   | (B1) to (B4), (B6)     | (B2), (B9), (C1)        |
/// | end        | E      | ns   | (B9)                   | (B9), (B10), (C1), (C8) |
/// | tail       | T      | ns   | (B8)                   | (B8), (B9), (C1), (O3)  |
/// | occupied   | N      | ns   | (B13)                  | (B13)                   |
struct BoundLabel {
  /// One micro-batch, from the start of its forward to the end of its backward on that stage.
  Duration round_trip;
  /// The same for the last micro-batch.
  Duration last_trip;
  /// The end of the last backward on that stage.
  Duration span;
  /// The end of the last optimizer step of the partial plan.
  Duration end;
  /// The same, counted from the start of the last forward on that stage.
  Duration tail;
  /// How long that stage computes, and transfers over the boundary behind it keep it from
  /// computing.
  Duration occupied;

  friend bool operator==(const BoundLabel&, const BoundLabel&) = default;
};

/// Whether no component of `a` is larger than that of `b`.
bool is_no_larger(const BoundLabel& a, const BoundLabel& b);

/// Returns the label of which each component is the smaller one of both.
BoundLabel componentwise_minimum(const BoundLabel& a, const BoundLabel& b);

/// Returns the label of the last stage, with which the recursion begins. Here and below
/// `num_micro_batches` are those of the stage's busiest replica.
BoundLabel initial_label(const StageBound& stage, std::int64_t num_micro_batches);

/// Returns the label after one more stage is put in front. Every component is monotone in every
/// component of `behind`. `least_span` is a further lower bound on V. O(1).
BoundLabel extend_label(const StageBound& stage, const BoundaryBound& boundary,
                        const BoundLabel& behind, std::int64_t num_micro_batches,
                        Duration least_span = {});

/// Lower bounds (B10) at the plan's own depths for replicas that start together. No simulation of
/// the plan with these costs ends before the first one, with or without contention, and none with
/// contention ends before the second one.
Duration lower_bound(const Plan& plan, const PlanCost& costs, const Topology& topology);
Duration lower_bound_with_contention(const Plan& plan, const PlanCost& costs,
                                     const Topology& topology);

/// Lower bound from the fixed order of 1F1B, GPipe's included (B5). It covers
/// the waits between any two stages whose depths differ by little, and the forwards that a stage
/// waits for before its first backward. It holds at exactly these depths and not at lower ones. It
/// is zero where a stage deals its micro-batches. O(stages^2).
Duration lower_bound_of_order(const Plan& plan, const PlanCost& costs);

/// Returns the costs of the least path through a plan with independent replicas (R1): for every
/// stage the forward, backward and exposed all-reduce (as one bucket) of its quickest replica, and
/// for every boundary the transfer of its quickest pair, on one port. Any path through replicas and
/// pairs takes as long or longer, so the bounds of this module that follow paths hold for such
/// plans when computed from these costs. A stage of one replica keeps its own costs.
/// O(replicas + flows). Requires: no dealt stage.
PlanCost least_path(const PlanCost& costs);

/// A plan and the mode in which it is simulated.
struct BoundedPlan {
  const Plan& plan;
  const PlanCost& costs;
  const Topology& topology;
  SimulationMode mode = {};
};

/// Whether the replicas are independent and the paths through them may differ.
bool follows_least_path(const BoundedPlan& bounded);

/// Returns the costs of the least path through a plan of which some stages deal their
/// micro-batches: those of such a stage as in least_path(), and for a boundary of such a stage the
/// least time over its transfers, without ports. Other stages and boundaries keep their own costs.
/// O(replicas + flows).
PlanCost least_path_of_dealt(const Plan& plan, const PlanCost& costs);

/// Return the bounds above in the form that holds in the mode of `bounded`. Requires: replicas are
/// together, or no stage deals its micro-batches.
Duration lower_bound(const BoundedPlan& bounded);
Duration lower_bound_of_order(const BoundedPlan& bounded);

/// Returns how long a stage's all-reduces go on after its last backward on idle links: done of
/// (B11). Bucket k is reduced once it is ready and bucket k - 1 is done.
Duration exposed_all_reduce(const StageCost& stage);

/// Returns A of (B11): the time from the end of a stage's last backward on idle links to the end of
/// its optimizer steps, whether they come at the end or bucket by bucket.
Duration time_after_last_backward(const StageCost& stage);

}  // namespace dapple::search
