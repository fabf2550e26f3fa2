// A predicted timeline against a measured one of the same plan: what took longer than foreseen.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/timeline/timeline.h"

namespace dapple {

/// The actions of one kind and stage. Of computations and reductions the median length, on the lane
/// where that is longest; of transfers from the first start to the last end of those of one
/// micro-batch, the median over micro-batches.
struct LengthComparison {
  StageIndex stage;
  ActionKind kind = ActionKind::Forward;
  std::int64_t count = 0;  // micro-batches or buckets
  Duration predicted;
  Duration measured;

  /// What all of them took beyond the prediction, on their stream.
  Duration beyond() const { return count * (measured - predicted); }
};

struct TimelineComparison {
  Duration predicted;  // iterations
  Duration measured;
  std::vector<LengthComparison> lengths;  // by stage, then kind
  /// On the critical paths, where no action runs: a device that has all that it needs does not go
  /// on yet, as a thread that is not woken, or its clock is another one's.
  Duration predicted_waiting;
  Duration measured_waiting;
};

/// What only one of the two has is left out. O(actions log actions). Requires: the computations of
/// a lane do not overlap.
TimelineComparison compare_timelines(const Timeline& predicted, const Timeline& measured);

/// Those that took at least a tenth, and a hundredth of the predicted iteration, longer than
/// foreseen; who lost most first.
std::vector<LengthComparison> slower_than_predicted(const TimelineComparison& comparison);

}  // namespace dapple
