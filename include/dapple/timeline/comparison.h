// Compares a predicted with a measured timeline of the same plan to find what took longer than
// predicted.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/timeline/timeline.h"

namespace dapple {

/// The predicted and measured length of the actions of one kind and stage. For computations and
/// reductions it is the median length, on the lane on which that median is longest; a reduction's
/// length is without the time in which members wait for the last one to begin. For transfers
/// it is the time from the first start to the last end of the transfers of one micro-batch, as the
/// median over micro-batches.
struct LengthComparison {
  /// One of the actions, by its micro-batch or bucket.
  struct Single {
    std::int32_t index = 0;
    Duration predicted;
    Duration measured;
  };

  StageIndex stage;
  ActionKind kind = ActionKind::Forward;
  /// The number of micro-batches or buckets.
  std::int64_t count = 0;
  Duration predicted;
  Duration measured;
  /// The action whose length differs most from its predicted one, of any lane; the first of equals.
  Single farthest = {};

  /// Returns how much longer than predicted all of the actions took on their stream.
  Duration beyond() const { return count * (measured - predicted); }
};

struct TimelineComparison {
  /// The predicted and the measured iteration.
  Duration predicted;
  Duration measured;
  /// The comparisons by stage, then by kind.
  std::vector<LengthComparison> lengths;
  /// The time on the predicted and on the measured critical path during which no action runs: a
  /// device has all of its inputs but does not continue yet, for example because its thread has not
  /// been woken, or because its clock differs from that of another device.
  Duration predicted_waiting;
  Duration measured_waiting;
};

/// Compares two timelines. Actions that only one of them has are left out. O(actions log actions).
/// Requires: the computations of a lane do not overlap.
TimelineComparison compare_timelines(const Timeline& predicted, const Timeline& measured);

/// Returns the actions that took longer than predicted by at least a tenth of their predicted
/// length and a hundredth of the predicted iteration, largest LengthComparison::beyond() first.
std::vector<LengthComparison> slower_than_predicted(const TimelineComparison& comparison);

}  // namespace dapple
