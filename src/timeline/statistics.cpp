#include "dapple/timeline/statistics.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>

#include "dapple/core/parallel.h"
#include "timeline/causes.h"

namespace dapple {
namespace {

struct Interval {
  Duration begin;
  Duration end;
};

bool begins_before(const Interval& a, const Interval& b) {
  return a.begin < b.begin;
}

/// The time covered by at least one of the added intervals, which must be added in order of begin.
class Coverage {
 public:
  void add(const Interval& interval) {
    const Duration begin = std::max(interval.begin, until_);
    if (interval.end <= begin) return;
    total_ += interval.end - begin;
    until_ = interval.end;
  }
  Duration total() const { return total_; }

 private:
  Duration total_;
  Duration until_;
};

class Statistician {
 public:
  explicit Statistician(const Timeline& timeline) : timeline_(timeline), causes_(timeline) {}

  std::vector<LaneStatistics> lanes() const;
  std::vector<PathSegment> critical_path() const;

 private:
  /// The statistics of one lane up to the action added last.
  struct LaneState {
    IdleTime idle;
    // The end of the lane's last computation.
    std::optional<Duration> computed_until;
    Coverage computing;
    Coverage communicating;
    Coverage both;
  };

  const TimedAction& at(std::size_t action) const { return timeline_.actions[action]; }
  void compute(LaneState& lane, std::size_t action) const;
  void communicate(std::vector<LaneState>& lanes, std::size_t action) const;
  void add_gap(IdleTime& idle, const Interval& gap, std::size_t next) const;
  void add_gap_before_step(IdleTime& idle, const Interval& gap, std::size_t step) const;

  const Timeline& timeline_;
  Causes causes_;
};

/// Divides a gap: until the input is computed, until it has arrived, and the rest.
void Statistician::add_gap(IdleTime& idle, const Interval& gap, std::size_t next) const {
  if (gap.begin == gap.end) return;
  const std::optional<std::size_t> producer = causes_.producer_for(next);
  const Duration computed =
      producer ? std::clamp(at(*producer).end, gap.begin, gap.end) : gap.begin;
  const std::optional<std::size_t> transfer = causes_.transfer_to(next);
  const Duration arrived = transfer ? std::clamp(at(*transfer).end, computed, gap.end) : computed;
  idle.producer += computed - gap.begin;
  const bool blocks = timeline_.transfers != Transfers::Overlapped;
  idle.transfer += (blocks ? gap.end : arrived) - computed;
  idle.other += blocks ? Duration{} : gap.end - arrived;
}

/// Divides a gap before an optimizer step. Up to the end of the last awaited reduction, the step
/// waits for reductions, or for other replicas while no reduction runs.
void Statistician::add_gap_before_step(IdleTime& idle, const Interval& gap,
                                       std::size_t step) const {
  std::vector<Interval> reductions;
  Duration reduced = gap.begin;
  for (const std::size_t reduction : causes_.reductions_before(step)) {
    const Interval part{std::max(at(reduction).start, gap.begin),
                        std::min(at(reduction).end, gap.end)};
    reduced = std::max(reduced, part.end);
    reductions.push_back(part);
  }
  std::sort(reductions.begin(), reductions.end(), begins_before);
  Coverage covered;
  for (const Interval& reduction : reductions) covered.add(reduction);
  const Duration reducing = covered.total();
  idle.all_reduce += reducing;
  idle.producer += reduced - gap.begin - reducing;
  const bool blocks = timeline_.transfers != Transfers::Overlapped;
  (blocks ? idle.transfer : idle.other) += gap.end - reduced;
}

void Statistician::compute(LaneState& lane, std::size_t action) const {
  const Interval interval{at(action).start, at(action).end};
  lane.computing.add(interval);
  lane.both.add(interval);
  if (!lane.computed_until) {
    lane.idle.fill = interval.begin;
  } else {
    const Interval gap{*lane.computed_until, interval.begin};
    if (at(action).action.kind == ActionKind::OptimizerStep) {
      add_gap_before_step(lane.idle, gap, action);
    } else {
      add_gap(lane.idle, gap, action);
    }
  }
  lane.computed_until = interval.end;
}

/// Adds an action to the communication of its own lane and, for a transfer, of its receivers.
void Statistician::communicate(std::vector<LaneState>& lanes, std::size_t action) const {
  const auto add = [&, interval = Interval{at(action).start, at(action).end}](LaneIndex lane) {
    lanes[lane.position()].communicating.add(interval);
    lanes[lane.position()].both.add(interval);
  };
  add(at(action).lane);
  if (!reduces(at(action).action.kind)) causes_.visit_receivers_of(action, add);
}

/// Processes actions in the order of the timeline, in which related actions are close together in
/// memory.
std::vector<LaneStatistics> Statistician::lanes() const {
  std::vector<LaneState> states(timeline_.lanes.size());
  Duration iteration;
  for (std::size_t i = 0; i < timeline_.actions.size(); ++i) {
    iteration = std::max(iteration, at(i).end);
    switch (stream_of(at(i).action.kind)) {
      case Stream::Compute:
        compute(states[at(i).lane.position()], i);
        break;
      case Stream::SendForward:
      case Stream::SendBackward:
      case Stream::Collective:
        communicate(states, i);
        break;
      case Stream::None:
        break;
    }
  }
  std::vector<LaneStatistics> lanes;
  for (LaneState& state : states) {
    (state.computed_until ? state.idle.drain : state.idle.fill) =
        iteration - state.computed_until.value_or(Duration{});
    const Duration busy = state.computing.total();
    lanes.push_back({.busy = busy,
                     .idle = state.idle,
                     .communicating = state.communicating.total(),
                     .exposed = state.both.total() - busy});
  }
  return lanes;
}

std::vector<PathSegment> Statistician::critical_path() const {
  std::vector<PathSegment> path;
  const auto add = [&path](std::optional<std::size_t> action, Duration begin, Duration end) {
    if (begin < end) path.push_back({.action = action, .begin = begin, .end = end});
  };
  // At first the action that ends last, then always the cause of the one before.
  std::optional<Cause> next;
  for (std::size_t i = 0; i < timeline_.actions.size(); ++i) {
    const TimedAction& timed = at(i);
    if (next && timed.end < next->moment) continue;
    const bool is_later = !next || timed.end > next->moment;
    if (is_later || timed.lane < at(next->action).lane) {
      next = Cause{.action = i, .moment = timed.end};
    }
  }
  // Clocks of measured lanes may disagree, so that actions of length zero wait for each other.
  std::vector<bool> is_passed(timeline_.actions.size(), false);
  Duration begin;
  while (next && !is_passed[next->action]) {
    is_passed[next->action] = true;
    begin = at(next->action).start;
    add(next->action, begin, next->moment);
    next = causes_.of(next->action);
    add(std::nullopt, next ? next->moment : Duration{}, begin);
    if (next) begin = next->moment;
  }
  if (next) add(std::nullopt, Duration{}, begin);
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace

Duration IdleTime::total() const {
  Duration sum;
  for (const IdleCause& cause : kIdleCauses) sum += this->*cause.part;
  return sum;
}

IdleTime& IdleTime::operator+=(const IdleTime& more) {
  for (const IdleCause& cause : kIdleCauses) this->*cause.part += more.*cause.part;
  return *this;
}

IdleTime operator*(std::int64_t factor, const IdleTime& idle) {
  IdleTime product;
  for (const IdleCause& cause : kIdleCauses) product.*cause.part = factor * (idle.*cause.part);
  return product;
}

TimelineAnalysis analyse(const Timeline& timeline) {
  constexpr std::size_t kFewActions = 100'000;
  const Statistician statistician(timeline);
  TimelineAnalysis analysis;
  const std::function<void()> parts[] = {[&] { analysis.lanes = statistician.lanes(); },
                                         [&] { analysis.path = statistician.critical_path(); }};
  parallel_for(std::size(parts), timeline.actions.size() > kFewActions ? 2 : 1,
               [&](std::size_t i) { parts[i](); });
  return analysis;
}

IdleTime idle_device_time(const Timeline& timeline, const std::vector<LaneStatistics>& lanes) {
  IdleTime sum;
  for (std::size_t l = 0; l < lanes.size(); ++l) {
    sum += static_cast<std::int64_t>(timeline.lanes[l].devices.size()) * lanes[l].idle;
  }
  return sum;
}

std::vector<PathShare> shares_of(const Timeline& timeline, const std::vector<PathSegment>& path) {
  std::map<ActionKind, Duration> by_kind;
  Duration unexplained;
  for (const PathSegment& segment : path) {
    const Duration length = segment.end - segment.begin;
    if (segment.action) {
      by_kind[timeline.actions[*segment.action].action.kind] += length;
    } else {
      unexplained += length;
    }
  }
  std::vector<PathShare> shares;
  for (const auto& [kind, time] : by_kind) shares.push_back({.kind = kind, .time = time});
  if (unexplained > Duration{}) shares.push_back({.kind = std::nullopt, .time = unexplained});
  return shares;
}

std::vector<LaneIndex> stragglers(const std::vector<LaneStatistics>& lanes) {
  if (lanes.empty()) return {};
  std::vector<Duration> busy;
  for (const LaneStatistics& lane : lanes) busy.push_back(lane.busy);
  std::sort(busy.begin(), busy.end());
  const std::size_t middle = busy.size() / 2;
  const Duration twice_median = busy[(busy.size() - 1) / 2] + busy[middle];
  std::vector<LaneIndex> found;
  for (std::size_t l = 0; l < lanes.size(); ++l) {
    // busy / median > 105 / 100, computed in integers.
    if (Wide{200} * lanes[l].busy.ns > Wide{105} * twice_median.ns) {
      found.push_back(index_at<LaneIndex>(l));
    }
  }
  return found;
}

}  // namespace dapple
