// What a timeline says about itself: why its lanes are idle, which chain of actions makes it as
// long as it is, how much communication no computation hides, which lanes hold up the others. It
// holds for predicted and for measured timelines alike; what no rule explains is counted apart.
//
// A computation waits for its lane's previous one and for its input: the computation of a
// neighbouring stage that makes it, then the transfer that brings it (waiting for the link counts
// as transfer). An optimizer step waits for the reductions of its stage's gradients on its lane.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/schedule/schedule.h"
#include "dapple/timeline/timeline.h"

namespace dapple {

/// Idle time of a lane by cause. A gap before a computation falls into up to three pieces: until
/// its input is computed, until that has arrived, and until it starts.
struct IdleTime {
  Duration fill;        // before the lane's first computation
  Duration producer;    // the next input is still to be computed, by another lane
  Duration transfer;    // it is on its way
  Duration all_reduce;  // gradients are being reduced, and the optimizer step waits for them
  Duration other;       // the next input is there; zero in a simulated timeline
  Duration drain;       // after the lane's last computation, to the end of the iteration

  Duration total() const;
  IdleTime& operator+=(const IdleTime& more);
  friend IdleTime operator*(std::int64_t factor, const IdleTime& idle);
  friend bool operator==(const IdleTime&, const IdleTime&) = default;
};

/// The causes with their names, in the order in which they are shown.
struct IdleCause {
  const char* name;
  Duration IdleTime::*part;
};
inline constexpr IdleCause kIdleCauses[] = {
    {"filling", &IdleTime::fill},
    {"waiting for a stage", &IdleTime::producer},
    {"waiting for transfers", &IdleTime::transfer},
    {"waiting for all-reduce", &IdleTime::all_reduce},
    {"unexplained", &IdleTime::other},
    {"draining", &IdleTime::drain},
};

struct LaneStatistics {
  Duration busy;           // computing
  IdleTime idle;           // busy + idle.total() is the iteration
  Duration communicating;  // at least one message leaves or arrives, or a reduction runs
  Duration exposed;        // part of it beside which the lane computes nothing
};

/// Idle time of all devices together: each lane's, times its devices. O(lanes).
IdleTime idle_device_time(const Timeline& timeline, const std::vector<LaneStatistics>& lanes);

/// A piece of a critical path: what runs in [begin, end), or nothing that is known to.
struct PathSegment {
  std::optional<std::size_t> action;  // position in Timeline::actions
  Duration begin;
  Duration end;
};

/// What all of its actions say together.
struct TimelineAnalysis {
  std::vector<LaneStatistics> lanes;
  /// The critical path: a chain of actions that makes the iteration as long as it is, from moment
  /// zero to the last end without a gap, walked from that end: what explains an action's start is
  /// whatever it waited for last, its stream's previous action or its input; of equals the previous
  /// action. Only the first part of a backward is on the path where a bucket of its gradients,
  /// reduced beside the rest, is what counts. Of several last ends, the first lane's. Segments that
  /// take no time are left out.
  std::vector<PathSegment> path;
};

/// O(actions log actions). Requires: the computations of a lane do not overlap.
TimelineAnalysis analyse(const Timeline& timeline);

/// How much of a path is one kind of work; no kind for what is not explained.
struct PathShare {
  std::optional<ActionKind> kind;
  Duration time;
};
/// In the order of the kinds, what is not explained last; kinds that are not on the path are left
/// out. The times add up to the iteration. O(segments).
std::vector<PathShare> shares_of(const Timeline& timeline, const std::vector<PathSegment>& path);

/// Lanes that compute for more than 5 % longer than the median lane (of an even number of lanes,
/// the mean of the middle two), by lane. O(lanes log lanes).
std::vector<LaneIndex> stragglers(const std::vector<LaneStatistics>& lanes);

}  // namespace dapple
