// Earliest start times of all forwards and backwards of a pipeline, for all warm-up depths in a box
// at once, and the lower bound on the plan's time that follows from them ((T1)-(T4) in
// docs/bounds.md).
//
// With depth K a stage runs F0 .. F(K-1), B0, FK, B1 and so on. If K is only known to lie within
// [least, most], then backward j surely follows forward j + least - 1, and forward i surely follows
// backward i - most. No computation starts before all that surely precedes it has ended, its input
// has arrived, and the work in between is done. The bound thus accounts at once for the cost of
// shallow depths early and of deep ones late, along the whole pipeline. Where least = most at every
// stage, it is the simulated time without contention but for remainders of less than a nanosecond
// per transfer.
// Source: the order of 1F1B in DAPPLE (PPoPP'21) section 3.2; the bound is a longest path over the
// precedences that all orders of the box have in common. GPipe is the depth M.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/cost/transfer.h"
#include "dapple/search/bounds/bound.h"

namespace dapple::search {

/// A set of depth vectors: those with least[s] <= depth <= most[s] for every stage s that do not
/// rise from stage to stage.
struct DepthBox {
  std::vector<std::int64_t> least;
  std::vector<std::int64_t> most;

  friend bool operator==(const DepthBox&, const DepthBox&) = default;
};

/// Lower bounds on the starts of forwards and backwards, by stage and micro-batch.
struct EarliestStarts {
  std::vector<std::vector<Duration>> forwards;
  std::vector<std::vector<Duration>> backwards;
};

/// Bounds one plan over boxes of warm-up depths. It reuses its working memory from box to box.
class EarliestStartBound {
 public:
  /// With contention, the bound includes how boundaries and all-reduces slow each other down. With
  /// independent replicas it does not; it then follows their least_path(). The depths of the plan
  /// itself are ignored. Requires: no dealt stage.
  explicit EarliestStartBound(const BoundedPlan& bounded);

  /// Returns a lower bound on the plan's time for all depth vectors in the box. If `known` is
  /// given, it must hold for all of them. O(stages * micro-batches * ports).
  /// Requires: per stage 1 <= least <= most <= M, and neither rises from stage to stage.
  Duration bound(const DepthBox& box, const EarliestStarts* known = nullptr);

  /// The number of forwards and backwards that one call of bound() visits.
  std::int64_t steps() const;

 private:
  /// A port, which transfers pass one after another.
  ///
  /// | member | symbol, docs/bounds.md | unit | equations |
  /// | ------ | ---------------------- | ---- | --------- |
  /// | busy   | busy_p                 | ns   | (T3)      |
  /// | time   | time_p                 | ns   | (T3)      |
  /// | anchor | ready_h - h busy_p     | ns   | (T3)      |
  struct Queue {
    // Occupation of the port by one transfer, rounded down.
    Duration busy;
    // Time of one transfer, latency included.
    Duration time;
    // Maximum of ready_h - h * busy over the transfers h so far.
    Duration anchor;
  };
  /// The boundary in front of a stage, in one direction.
  struct Way {
    Duration time;
    std::vector<Queue> queues;
    Duration arrival(Duration ready, std::int64_t micro_batch);
  };
  /// A stage, and what has been visited of it.
  ///
  /// | member             | symbol, docs/bounds.md         | unit | equations        |
  /// | ------------------ | ------------------------------ | ---- | ---------------- |
  /// | forward, backward  | F, B                           | ns   | (T1), (T2)       |
  /// | after_backward     | A                              | ns   | (T4), (B12)      |
  /// | activations        | c, ready_m, busy_p, time_p     | ns   | (T3)             |
  /// | gradients          | the same of gradients          | ns   | (T3)             |
  /// | last_gradient      | d_last                         | ns   | (B12)            |
  /// | least, most        | least, most                    | 1    | (T1), (T2)       |
  /// | from_forwards      | f_h - hF - max(0, h-least+1) B | ns   | (T1), (T2)       |
  /// | from_backwards     | g_h - min(M, h+most) F - hB    | ns   | (T2)             |
  /// | from_old_backwards | the same for h < n             | ns   | (T1)             |
  /// | last_forward_end   | f_{i-1} + F                    | ns   | (T1), (T2)       |
  /// | backward_end       | g_h + B                        | ns   | (T1), (T2), (T4) |
  struct Stage {
    Duration forward;
    Duration backward;
    Duration after_backward;
    // From the stage in front.
    Way activations;
    // Back to the stage in front.
    Way gradients;
    Duration last_gradient;
    std::int64_t least = 1;
    std::int64_t most = 1;
    // Maxima over earlier computations of their start less the most work that may precede it. No
    // computation starts before such a maximum plus the work that surely precedes it.
    Duration from_forwards;
    Duration from_backwards;
    // Only over the backwards that precede the next forward at every depth of the box.
    Duration from_old_backwards;
    std::int64_t old_backwards = 0;
    // Backwards visited so far.
    std::int64_t backwards = 0;
    Duration last_forward_end;
    std::vector<Duration> backward_end;
  };

  EarliestStartBound(const PlanCost& costs, const BoundedPlan& bounded, bool counts_on_sharing);
  /// `topology` is null unless links are shared. There, ends of transfers are rounded up to a tick
  /// per sender and not per port, so the occupation of a port is computed from its bytes instead of
  /// its ticks.
  static Way way_of(const TransferCost& transfer, const Topology* topology);
  void reset(const DepthBox& box);
  Duration forward(Stage& stage, std::int64_t micro_batch, Duration earliest);
  Duration backward(Stage& stage, std::int64_t micro_batch, Duration earliest);
  void run_forwards(std::int64_t micro_batch);
  void run_backwards(std::int64_t forwards);

  std::int64_t micro_batches_;
  const EarliestStarts* known_ = nullptr;
  std::vector<Stage> stages_;
  // Arrivals of gradients, by stage and micro-batch.
  std::vector<std::vector<Duration>> gradient_here_;
};

}  // namespace dapple::search
