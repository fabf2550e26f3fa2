// Warm-up depths: the families worth trying, cut down to what memory holds.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dapple/cost/cost_model.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/plan/plan.h"
#include "dapple/search/bounds/earliest_start_bound.h"

namespace dapple::planner {

using Depths = std::vector<std::int64_t>;  // per stage

class DepthLimits {
 public:
  /// `plan` needs no depths yet, but its gradient buckets.
  DepthLimits(const Plan& plan, const CostModel& costs, bool ignore_memory);

  /// Legal depths that are nowhere above `wanted` and fit every device: stages that do not fit are
  /// cut down one by one from the first on, a stage of depth 1 at the expense of the one before.
  /// Nothing if not even a depth of 1 all along fits.
  /// O(stages * cuts made).
  std::optional<Depths> fit(Depths wanted) const;

  /// Whether these legal depths fit every device. O(stages).
  bool fit_as_they_are(const Depths& depths) const;

  /// Whether some depths of the box may fit, as far as each stage tells beside what it is best
  /// for it that its neighbours hold. O(stages).
  bool may_fit(const search::DepthBox& box) const;

  /// Depths that no legal ones that fit exceed anywhere: every stage's own limit, what waits at the
  /// boundaries left out, and that of the stages before it. O(stages).
  Depths caps() const;

 private:
  /// Memory of one kind of replica, linear in its depth and its neighbours'.
  struct Replica {
    Bytes fixed;  // at a depth of 1 all along, communication buffers included
    Bytes per_micro_batch;
    Bytes before;  // boundary tensors of its share
    Bytes behind;
    Bytes limit;
  };
  bool fits(std::size_t stage, const Depths& depths) const;

  std::int64_t num_micro_batches_;
  bool ignore_memory_;
  std::vector<std::vector<Replica>> stages_;
};

/// Distinct depths to try for a plan of so many stages, before memory: policy A (S-s), policy B
/// (2(S-s)-1), multiples of A, and everything in flight. DAPPLE (PPoPP'21) section 3.2; the rest
/// for transfers that are longer than policy B hides.
std::vector<Depths> depth_families(std::size_t stages, std::int64_t num_micro_batches);

/// Policy A, DAPPLE (PPoPP'21) section 3.2: S-s at stage s of S, as far as there are micro-batches.
Depths least_depths(std::size_t stages, std::int64_t num_micro_batches);

/// Depths for an end at `target`: as many micro-batches in flight as hide the round trip from each
/// stage at the pace of the slowest, times `slack`, and as many as let the last forward of each
/// stage start in time for what then follows behind it, all-reduces included. The second is what
/// matters where an early stage sets the pace and a late one has much to reduce. Requires: no dealt
/// stage; positive times somewhere. O(stages).
Depths depths_for_target(const PlanCost& costs, std::int64_t num_micro_batches, Duration target,
                         std::int64_t slack);

/// How many legal depths there are for so many stages, counted up to `most`: M >= K_0 >= ... >= 1.
std::int64_t count_legal_depths(std::size_t stages, std::int64_t num_micro_batches,
                                std::int64_t most);

/// All of them, in rising order. O(their number * stages).
std::vector<Depths> legal_depths(std::size_t stages, std::int64_t num_micro_batches);

/// Depths next to these: one more up to some stage, one less from some stage on.
std::vector<Depths> neighbours(const Depths& depths, std::int64_t num_micro_batches);

}  // namespace dapple::planner
