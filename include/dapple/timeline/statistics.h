// Analyses a timeline: why its lanes are idle, which chain of actions determines its length, how
// much communication is not hidden by computation, and which lanes are stragglers. The analysis is
// the same for predicted and measured timelines; time that no rule explains is reported separately.
//
// A computation waits for the previous computation of its lane and for its input: first the
// computation of a neighbouring stage that makes the input, then the transfer that brings it
// (waiting for the link counts as transfer). An optimizer step waits for the reductions of its
// stage's gradients on its lane.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/schedule/schedule.h"
#include "dapple/timeline/timeline.h"

namespace dapple {

/// Idle time of a lane by cause. A gap before a computation is divided into up to three parts:
/// until its input is computed, until the input has arrived, and until the computation starts.
struct IdleTime {
  /// Before the lane's first computation.
  Duration fill;
  /// The next input is still to be computed by another lane.
  Duration producer;
  /// The next input is being transferred; where transfers block, also all the time for which the
  /// lane waits for a neighbour or for its own sends once the input is computed.
  Duration transfer;
  /// The optimizer step waits for gradients that are being reduced.
  Duration all_reduce;
  /// The next input is there; zero in a simulated timeline.
  Duration other;
  /// After the lane's last computation, until the end of the iteration.
  Duration drain;

  Duration total() const;
  IdleTime& operator+=(const IdleTime& more);
  friend IdleTime operator*(std::int64_t factor, const IdleTime& idle);
  friend bool operator==(const IdleTime&, const IdleTime&) = default;
};

/// A cause of idle time with its name; kIdleCauses lists them in the order of output.
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
  /// Time during which the lane computes.
  Duration busy;
  /// Idle time; busy + idle.total() is the iteration.
  IdleTime idle;
  /// Time during which at least one message leaves or arrives, or a reduction runs.
  Duration communicating;
  /// The part of `communicating` during which the lane computes nothing.
  Duration exposed;
};

/// Returns the idle time of all devices together: the sum over lanes of the lane's idle time times
/// its number of devices. O(lanes).
IdleTime idle_device_time(const Timeline& timeline, const std::vector<LaneStatistics>& lanes);

/// A segment [begin, end) of a critical path.
struct PathSegment {
  /// The action that runs, as a position in Timeline::actions; empty if none is known to run.
  std::optional<std::size_t> action;
  Duration begin;
  Duration end;
};

/// The result of analyse().
struct TimelineAnalysis {
  std::vector<LaneStatistics> lanes;
  /// The critical path: a chain of actions that determines the length of the iteration, from time
  /// zero to the last end without a gap. It is traced backwards from that end: the predecessor of
  /// an action is whatever it waited for last, the previous action of its stream or its input; of
  /// equals, the previous action of the stream. A backward is on the path only up to the moment at
  /// which a bucket becomes ready if the path continues with the reduction of that bucket. If
  /// several actions end last, the path ends with that of the first lane. Segments of length zero
  /// are left out.
  std::vector<PathSegment> path;
};

/// Analyses a timeline. O(actions log actions). Requires: the computations of a lane do not
/// overlap.
TimelineAnalysis analyse(const Timeline& timeline);

/// The time that one kind of action takes on a path; no kind stands for unexplained time.
struct PathShare {
  std::optional<ActionKind> kind;
  Duration time;
};
/// Returns the shares of a path in the order of the kinds, unexplained time last. Kinds that are
/// not on the path are left out. The times add up to the iteration. O(segments).
std::vector<PathShare> shares_of(const Timeline& timeline, const std::vector<PathSegment>& path);

/// Returns the lanes that compute for more than 5 % longer than the median lane, ascending. With an
/// even number of lanes the median is the mean of the middle two. O(lanes log lanes).
std::vector<LaneIndex> stragglers(const std::vector<LaneStatistics>& lanes);

}  // namespace dapple
