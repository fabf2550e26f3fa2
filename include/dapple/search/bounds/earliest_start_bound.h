// Earliest start times of all forwards and backwards of a pipeline, for all warm-up depths in a box
// at once, and the lower bound on the plan's time that follows from them ((T1)-(T5) in
// docs/bounds.md).
//
// With depth K a stage runs F0 .. F(K-1), B0, FK, B1 and so on. If K is only known to lie within
// [least, most], then backward j surely follows forward j + least - 1, and forward i surely follows
// backward i - most. No computation starts before all that surely precedes it has ended, its input
// has arrived, and the work in between is done. The bound thus accounts at once for the cost of
// shallow depths early and of deep ones late, along the whole pipeline. Where least = most at every
// stage, it is the simulated time without contention but for remainders of less than a nanosecond
// per transfer. With contention it also counts what activations and gradients together pass through
// one port.
// Source: the order of 1F1B in DAPPLE (PPoPP'21) section 3.2; the bound is a longest path over the
// precedences that all orders of the box have in common. GPipe is the depth M.
//
// A stage that deals its micro-batches to r replicas has r lanes. A depth K of the stage is then
// one of K / r, rounded up, on each of its lanes, so that depths do not rise from stage to stage
// there either (docs/bounds.md, section 3).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dapple/core/index.h"
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
  /// independent replicas it does not; it then follows their least_path(). Nor does it where a
  /// stage deals its micro-batches; it then follows the least_path_of_dealt(). The depths of the
  /// plan itself are ignored. Requires: replicas are together, or no stage deals its micro-batches.
  explicit EarliestStartBound(const BoundedPlan& bounded);

  /// Returns a lower bound on the plan's time for all depth vectors in the box. If `known` is
  /// given, it must hold for all of them. A bound of `enough` or more may be smaller than the one
  /// without that limit, as nothing is visited any more once the work that is left shows that the
  /// bound will be that large. O(stages * micro-batches * ports).
  /// Requires: per stage 1 <= least <= most <= M, and neither rises from stage to stage.
  Duration bound(const DepthBox& box, const EarliestStarts* known = nullptr,
                 Duration enough = Duration::infinite());

  /// The number of forwards and backwards that one call of bound() visits.
  std::int64_t steps() const;

 private:
  /// A port, which transfers pass one after another.
  ///
  /// | member | symbol, docs/bounds.md | unit | equations |
  /// | ------ | ---------------------- | ---- | --------- |
  /// | busy   | busy_p                 | ns   | (T3)      |
  /// | time   | time_p                 | ns   | (T3)      |
  /// | passed | m                      | 1    | (T3)      |
  /// | anchor | ready_h - h busy_p     | ns   | (T3)      |
  struct Queue {
    PortIndex port;
    // Occupation of the port by one transfer, rounded down.
    Duration busy;
    // Time of one transfer, latency included.
    Duration time;
    // The transfers so far.
    std::int64_t passed = 0;
    // Maximum of ready_h - h * busy over the transfers h so far.
    Duration anchor;

    void reset();
    /// Lower bound on the arrival of the next transfer, if it and all later ones are ready at
    /// `ready` or later.
    Duration arrival(Duration ready);
  };
  /// What a transfer takes, and the queues that it passes, by position.
  struct Way {
    Duration time;
    std::vector<std::size_t> queues;
  };
  /// The boundary in front of a stage, in one direction.
  class Ways {
   public:
    Ways() = default;
    /// `topology` is null unless links are shared. There, ends of transfers are rounded up to a
    /// tick per sender and not per port, so the occupation of a port is computed from its bytes
    /// instead of its ticks. `senders` and `receivers` are the lanes of both sides.
    Ways(const std::vector<TransferCost>& transfers, std::int64_t senders, std::int64_t receivers,
         const Topology* topology);

    void reset();
    /// Lower bound on the moment at which the next micro-batch has arrived, which is sent at
    /// `ready`; if there is one receiver, and those before it.
    Duration arrival(Duration ready);
    /// The least time of any transfer.
    Duration least_time() const;

   private:
    void find_common_ports();

    std::int64_t senders_ = 1;
    // Micro-batch m takes way m modulo their number.
    std::vector<Way> ways_;
    // Each is of transfers that one lane sends, one after another.
    std::vector<Queue> queues_;
    // Ports that all micro-batches pass on their way from several lanes to one.
    std::vector<Queue> common_;
    std::int64_t micro_batches_ = 0;
    // When the last micro-batches were sent, one of each sender.
    std::vector<Duration> recent_;
  };
  /// The largest of the first values of a sequence of which more and more are known.
  class RunningMaximum {
   public:
    void reset();
    /// Returns the largest of the first `count` values. Requires: `count` does not fall from call
    /// to call.
    template <class Value>
    Duration of_first(std::int64_t count, Value value) {
      for (; count_ < count; ++count_) largest_ = std::max(largest_, value(count_));
      return largest_;
    }

   private:
    std::int64_t count_ = 0;
    Duration largest_;
  };
  /// A port that activations over one boundary and gradients over another one pass in the same
  /// direction (T5). Stages are given by position.
  struct SharedPort {
    // The stages whose forwards and backwards make ready what passes the port.
    std::size_t forwards_of = 0;
    std::size_t backwards_of = 0;
    // The last stage in front of both boundaries, and the first one behind both.
    std::size_t front = 0;
    std::size_t behind = 0;
    // The stages whose least and largest depths say what is ready before what.
    std::size_t least_of = 0;
    std::size_t most_of = 0;
    // The occupation of the port by the transfer of one micro-batch, rounded down.
    Duration activation;
    Duration gradient;
    // The largest terms of (T5) before what is the same for all windows is added: of windows that
    // end when an activation, or a gradient, has passed, by what is ready when they begin.
    RunningMaximum until_activation_from_forwards = {};
    RunningMaximum until_activation_from_backwards = {};
    RunningMaximum until_gradient_from_forwards = {};
    RunningMaximum until_gradient_from_backwards = {};
  };
  /// A lane of a stage, and what has been visited of it. The numbers of its micro-batches are those
  /// among its own.
  ///
  /// | member             | symbol, docs/bounds.md         | unit | equations        |
  /// | ------------------ | ------------------------------ | ---- | ---------------- |
  /// | forward, backward  | F, B                           | ns   | (T1), (T2)       |
  /// | micro_batches      | M                              | 1    | (T1), (T2)       |
  /// | least, most        | least, most                    | 1    | (T1), (T2)       |
  /// | from_forwards      | f_h - hF - max(0, h-least+1) B | ns   | (T1), (T2)       |
  /// | from_backwards     | g_h - min(M, h+most) F - hB    | ns   | (T2)             |
  /// | from_old_backwards | the same for h < n             | ns   | (T1)             |
  /// | forward_end        | f_h + F                        | ns   | (T1), (T2)       |
  /// | backward_end       | g_h + B                        | ns   | (T1), (T2), (T4) |
  struct Lane {
    Duration forward;
    Duration backward;
    std::int64_t micro_batches = 0;
    std::int64_t least = 1;
    std::int64_t most = 1;
    // Maxima over computations so far of their start less the most work that may precede it. No
    // later computation starts before such a maximum plus the work that surely precedes it. Those
    // of forwards, and the ends of forwards and backwards, are kept by micro-batch.
    std::vector<Duration> from_forwards;
    Duration from_backwards;
    // Only over the backwards that precede the next forward at every depth of the box.
    Duration from_old_backwards;
    std::int64_t old_backwards = 0;
    std::vector<Duration> forward_end;
    std::vector<Duration> backward_end;
  };
  /// A stage: its lanes, and the boundary in front of it.
  ///
  /// | member             | symbol, docs/bounds.md         | unit | equations        |
  /// | ------------------ | ------------------------------ | ---- | ---------------- |
  /// | after_backward     | A                              | ns   | (T4), (B12)      |
  /// | activations        | c, ready_m, busy_p, time_p     | ns   | (T3)             |
  /// | gradients          | the same of gradients          | ns   | (T3)             |
  /// | last_gradient      | d_last                         | ns   | (B12)            |
  struct Stage {
    // Micro-batch m is on lane m modulo their number.
    std::vector<Lane> lanes;
    Duration after_backward;
    // From the stage in front and back to it.
    Ways activations;
    Ways gradients;
    Duration last_gradient;
    // The shared ports that activations, and gradients, pass on their way to the stage.
    std::vector<std::size_t> shared_by_activations;
    std::vector<std::size_t> shared_by_gradients;
    // The least time from the end of the stage's last backward to the end of the iteration, `after`
    // of (T6).
    Duration after_all;
    // Backwards visited so far, of all lanes.
    std::int64_t backwards = 0;

    /// The number of a micro-batch among those of its lane. Mostly there is one lane, and a
    /// division would take longer than all else of a visit.
    std::int64_t number_of(std::int64_t micro_batch) const {
      return lanes.size() == 1 ? micro_batch : micro_batch / std::ssize(lanes);
    }
    /// The position of the lane of a micro-batch.
    std::size_t lane_of(std::int64_t micro_batch) const {
      return static_cast<std::size_t>(micro_batch - number_of(micro_batch) * std::ssize(lanes));
    }
  };

  EarliestStartBound(const PlanCost& costs, const BoundedPlan& bounded, bool counts_on_sharing);
  std::vector<Lane> lanes_of(const StagePlan& stage, const StageCost& cost,
                             const StageCost& own) const;
  void reset(const DepthBox& box);
  static Duration forward(Lane& lane, std::int64_t number, Duration earliest);
  static Duration backward(Lane& lane, std::int64_t number, Duration earliest);
  bool may_run_backward(std::size_t s, std::int64_t micro_batch, std::int64_t forwards) const;
  Duration bound_of_rest(std::int64_t forwards) const;
  void find_shared_ports(const PlanCost& costs, const Topology& topology);
  bool share(const TransferCost& activations, const TransferCost& gradients, SharedPort ways,
             const Topology& topology);
  Duration ready_after_forward(const SharedPort& port, std::int64_t number) const;
  Duration ready_after_backward(const SharedPort& port, std::int64_t number) const;
  Duration activation_through(SharedPort& port, std::int64_t micro_batch);
  Duration gradient_through(SharedPort& port, std::int64_t micro_batch);
  void run_forwards(std::int64_t micro_batch);
  void run_backwards(std::int64_t forwards);

  std::int64_t micro_batches_;
  const EarliestStarts* known_ = nullptr;
  std::vector<Stage> stages_;
  std::vector<SharedPort> shared_ports_;
  // Arrivals of gradients, by stage and micro-batch.
  std::vector<std::vector<Duration>> gradient_here_;
};

}  // namespace dapple::search
