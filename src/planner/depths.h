// Warm-up depths: the families worth trying, cut down to what memory holds.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dapple/cost/costs.h"
#include "dapple/plan/plan.h"

namespace dapple {

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

/// Depths next to these: one more up to some stage, one less from some stage on.
std::vector<Depths> neighbours(const Depths& depths, std::int64_t num_micro_batches);

}  // namespace dapple
