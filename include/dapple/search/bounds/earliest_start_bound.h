// When everything in a pipeline happens at the earliest, for all warm-up depths of a range at once:
// a lower bound that single depths meet.
//
// With depth K a stage runs F0 .. F(K-1), B0, FK, B1 and so on. Where K is only known to be within
// [least, most], backward j is known to come after forward j + least - 1, and forward i after
// backward i - most; each starts no earlier than what certainly comes before it has ended, what it
// waits for has arrived, and the work in between is done. So the bound sees at once what shallow
// depths cost early and deep ones late, along the whole pipeline. Where least and most are the same
// everywhere it is the simulated time without contention, but for remainders of less than a
// nanosecond per transfer.
// Source: the order of 1F1B in DAPPLE (PPoPP'21) section 3.2; longest paths over what all orders of
// the range have in common. GPipe is the depth M.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/cost/transfer.h"
#include "dapple/search/bounds/bound.h"

namespace dapple::search {

/// Warm-up depths per stage, from `least` to `most`; of them the legal ones, which do not rise.
struct DepthBox {
  std::vector<std::int64_t> least;
  std::vector<std::int64_t> most;

  friend bool operator==(const DepthBox&, const DepthBox&) = default;
};

/// Before these moments a stage's forwards and backwards do not start, by stage and micro-batch.
struct EarliestStarts {
  std::vector<std::vector<Duration>> forwards;
  std::vector<std::vector<Duration>> backwards;
};

/// Of one plan, whatever its depths. Keeps its working memory from one box to the next.
class EarliestStartBound {
 public:
  /// Where links are shared, boundaries and all-reduces slow each other, which the bound may count
  /// on; not where replicas are independent, whose least_path() it follows. The plan's depths are
  /// of no account. Requires: no dealt stage.
  explicit EarliestStartBound(const BoundedPlan& bounded);

  /// At least, for any legal depths in the box, where `known` holds for them all if it is given.
  /// O(stages * micro-batches * ports).
  /// Requires: per stage 1 <= least <= most <= M, and neither rises from stage to stage.
  Duration bound(const DepthBox& box, const EarliestStarts* known = nullptr);

  /// How many forwards and backwards a bound goes through.
  std::int64_t steps() const;

 private:
  /// A port: micro-batches follow each other no faster than it lets them through.
  struct Queue {
    Duration busy;  // of one transfer's occupation, rounded down
    Duration time;  // of one transfer
    Duration anchor;
  };
  /// The boundary before a stage, in one direction.
  struct Way {
    Duration time;
    std::vector<Queue> queues;
    Duration arrival(Duration ready, std::int64_t micro_batch);
  };
  struct Stage {
    Duration forward;
    Duration backward;
    Duration after_backward;
    Way activations;  // from the stage before
    Way gradients;    // back to it
    Duration last_gradient;
    std::int64_t least = 1;
    std::int64_t most = 1;
    // Starts, less all the work that may come before them: with all that must come before another
    // start, that one is no earlier.
    Duration from_forwards;
    Duration from_backwards;
    Duration from_old_backwards;  // that come before the next forward at any depth
    std::int64_t old_backwards = 0;
    std::int64_t backwards = 0;  // done so far
    Duration last_forward_end;
    std::vector<Duration> backward_end;
  };

  EarliestStartBound(const PlanCost& costs, const BoundedPlan& bounded, bool counts_on_sharing);
  /// `topology` where links are shared, where ends of transfers are rounded up to a tick for each
  /// sender and not for each port.
  static Way way_of(const TransferCost& transfer, const Topology* topology);
  void reset(const DepthBox& box);
  Duration forward(Stage& stage, std::int64_t micro_batch, Duration earliest);
  Duration backward(Stage& stage, std::int64_t micro_batch, Duration earliest);
  void run_forwards(std::int64_t micro_batch);
  void run_backwards(std::int64_t forwards);

  std::int64_t micro_batches_;
  const EarliestStarts* known_ = nullptr;
  std::vector<Stage> stages_;
  std::vector<std::vector<Duration>> gradient_here_;  // by stage and micro-batch
};

}  // namespace dapple::search
