#include "dapple/timeline/statistics.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <thread>
#include <utility>

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

/// Mostly they are in order.
void sort_by_begin(std::vector<Interval>& intervals) {
  if (std::is_sorted(intervals.begin(), intervals.end(), begins_before)) return;
  std::sort(intervals.begin(), intervals.end(), begins_before);
}

/// Time covered by at least one of them. Requires: by begin.
Duration covered(const std::vector<Interval>& intervals) {
  Duration total;
  Duration until;
  for (const Interval& interval : intervals) {
    const Duration begin = std::max(interval.begin, until);
    if (interval.end <= begin) continue;
    total += interval.end - begin;
    until = interval.end;
  }
  return total;
}

class Statistician {
 public:
  explicit Statistician(const Timeline& timeline)
      : timeline_(timeline), causes_(timeline), iteration_(iteration_time(timeline)) {}

  std::vector<LaneStatistics> lanes() const;
  std::vector<PathSegment> critical_path() const;

 private:
  const TimedAction& at(std::size_t action) const { return timeline_.actions[action]; }
  /// What a lane sends, receives and reduces.
  struct Communication {
    std::vector<Interval> intervals;  // by begin
    /// The end of the last transfer that brought the input of each computation of the lane.
    std::vector<std::optional<Duration>> arrivals;
  };
  IdleTime idle_of(LaneIndex lane, const std::vector<std::optional<Duration>>& arrivals) const;
  void add_gap(IdleTime& idle, const Interval& gap, std::size_t next,
               std::optional<Duration> arrival) const;
  void add_gap_before_step(IdleTime& idle, const Interval& gap, std::size_t step) const;
  std::vector<Interval> intervals_of(LaneIndex lane, Stream stream) const;
  Communication communication_of(LaneIndex lane) const;
  LaneStatistics statistics_of(LaneIndex lane) const;

  const Timeline& timeline_;
  Causes causes_;
  Duration iteration_;
};

/// The gap up to the moment its input was computed, from there to its arrival, and what is left.
void Statistician::add_gap(IdleTime& idle, const Interval& gap, std::size_t next,
                           std::optional<Duration> arrival) const {
  if (gap.begin == gap.end) return;
  const std::optional<std::size_t> producer = causes_.producer_for(next);
  const Duration computed =
      producer ? std::clamp(at(*producer).end, gap.begin, gap.end) : gap.begin;
  const Duration arrived = arrival ? std::clamp(*arrival, computed, gap.end) : computed;
  idle.producer += computed - gap.begin;
  idle.transfer += arrived - computed;
  idle.other += gap.end - arrived;
}

/// Until the last bucket is reduced: where no reduction runs, other replicas are still computing.
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
  sort_by_begin(reductions);
  const Duration reducing = covered(reductions);
  idle.all_reduce += reducing;
  idle.producer += reduced - gap.begin - reducing;
  idle.other += gap.end - reduced;
}

IdleTime Statistician::idle_of(LaneIndex lane,
                               const std::vector<std::optional<Duration>>& arrivals) const {
  IdleTime idle;
  const std::vector<std::size_t>& computed = causes_.line(lane, Stream::Compute);
  if (computed.empty()) {
    idle.fill = iteration_;
    return idle;
  }
  idle.fill = at(computed.front()).start;
  idle.drain = iteration_ - at(computed.back()).end;
  for (std::size_t i = 1; i < computed.size(); ++i) {
    const std::size_t next = computed[i];
    const Interval gap{at(computed[i - 1]).end, at(next).start};
    if (at(next).action.kind == ActionKind::OptimizerStep) {
      add_gap_before_step(idle, gap, next);
    } else {
      add_gap(idle, gap, next, arrivals[i]);
    }
  }
  return idle;
}

std::vector<Interval> Statistician::intervals_of(LaneIndex lane, Stream stream) const {
  std::vector<Interval> intervals;
  for (const std::size_t action : causes_.line(lane, stream)) {
    intervals.push_back({at(action).start, at(action).end});
  }
  return intervals;
}

/// Both by begin, and all of them so.
std::vector<Interval> merged(const std::vector<Interval>& some, const std::vector<Interval>& more) {
  std::vector<Interval> all;
  all.reserve(some.size() + more.size());
  std::merge(some.begin(), some.end(), more.begin(), more.end(), std::back_inserter(all),
             begins_before);
  return all;
}

/// Each of its streams, and what it receives one way, is mostly in order already.
Statistician::Communication Statistician::communication_of(LaneIndex lane) const {
  constexpr Stream kCommunication[] = {Stream::SendForward, Stream::SendBackward,
                                       Stream::Collective};
  std::vector<Interval> all;
  for (const Stream stream : kCommunication) {
    std::vector<Interval> sent = intervals_of(lane, stream);
    sort_by_begin(sent);
    all = all.empty() ? std::move(sent) : merged(all, sent);
  }
  std::vector<Interval> received_forward;
  std::vector<Interval> received_backward;
  std::vector<std::optional<Duration>> arrivals;
  const std::vector<std::size_t>& computed = causes_.line(lane, Stream::Compute);
  arrivals.reserve(computed.size());
  for (const std::size_t receiver : computed) {
    std::vector<Interval>& received =
        at(receiver).action.kind == ActionKind::Forward ? received_forward : received_backward;
    std::optional<Duration>& arrival = arrivals.emplace_back();
    causes_.visit_transfers_to(receiver, [&](std::size_t transfer) {
      received.push_back({at(transfer).start, at(transfer).end});
      if (!arrival || *arrival < at(transfer).end) arrival = at(transfer).end;
    });
  }
  sort_by_begin(received_forward);
  sort_by_begin(received_backward);
  return {merged(merged(all, received_forward), received_backward), std::move(arrivals)};
}

LaneStatistics Statistician::statistics_of(LaneIndex lane) const {
  const auto [communicating, arrivals] = communication_of(lane);
  std::vector<Interval> computing = intervals_of(lane, Stream::Compute);
  sort_by_begin(computing);
  const Duration busy = covered(computing);
  return {.busy = busy,
          .idle = idle_of(lane, arrivals),
          .communicating = covered(communicating),
          .exposed = covered(merged(computing, communicating)) - busy};
}

std::vector<LaneStatistics> Statistician::lanes() const {
  constexpr std::size_t kActionsOfAThread = 10'000;
  const std::size_t threads = std::min<std::size_t>(std::thread::hardware_concurrency(),
                                                    timeline_.actions.size() / kActionsOfAThread);
  std::vector<LaneStatistics> lanes(timeline_.lanes.size());
  parallel_for(lanes.size(), static_cast<int>(threads),
               [&](std::size_t l) { lanes[l] = statistics_of(index_at<LaneIndex>(l)); });
  return lanes;
}

std::vector<PathSegment> Statistician::critical_path() const {
  std::vector<PathSegment> path;
  const auto add = [&path](std::optional<std::size_t> action, Duration begin, Duration end) {
    if (begin < end) path.push_back({.action = action, .begin = begin, .end = end});
  };
  std::optional<Cause> next;  // the action that ends last, then what each waited for
  for (std::size_t i = 0; i < timeline_.actions.size(); ++i) {
    const TimedAction& timed = at(i);
    if (next && timed.end < next->moment) continue;
    const bool is_later = !next || timed.end > next->moment;
    if (is_later || timed.lane < at(next->action).lane) {
      next = Cause{.action = i, .moment = timed.end};
    }
  }
  // Clocks of measured lanes may disagree so that actions without length wait for each other.
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
  const Statistician statistician(timeline);
  return {.lanes = statistician.lanes(), .path = statistician.critical_path()};
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
    // busy / median > 105 / 100, in whole numbers.
    if (Wide{200} * lanes[l].busy.ns > Wide{105} * twice_median.ns) {
      found.push_back(index_at<LaneIndex>(l));
    }
  }
  return found;
}

}  // namespace dapple
