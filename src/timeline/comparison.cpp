#include "dapple/timeline/comparison.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "dapple/timeline/statistics.h"

namespace dapple {
namespace {

struct Kind {
  StageIndex stage;
  ActionKind kind = ActionKind::Forward;
  friend auto operator<=>(const Kind&, const Kind&) = default;
};

struct Length {
  std::int64_t count = 0;
  Duration median;
};

/// The length of one action, with its micro-batch or bucket.
struct SingleLength {
  std::int32_t index = 0;
  Duration length;
};

/// The lengths of the actions of one kind and stage, by lane.
using LanesOfKind = std::map<LaneIndex, std::vector<SingleLength>>;

Duration median_of(std::vector<SingleLength> lengths) {
  const auto middle = lengths.begin() + static_cast<std::ptrdiff_t>((lengths.size() - 1) / 2);
  std::nth_element(
      lengths.begin(), middle, lengths.end(),
      [](const SingleLength& a, const SingleLength& b) { return a.length < b.length; });
  return middle->length;
}

bool is_transfer(ActionKind kind) {
  return kind == ActionKind::SendActivation || kind == ActionKind::SendGradient;
}

/// Identifies a reduction by what its members have in common: each of them lists a reduction of
/// tied gradients under a stage of its own.
std::pair<Kind, std::int32_t> reduction_of(const Action& action) {
  const bool is_tied = action.kind == ActionKind::ReduceTied;
  return {{is_tied ? StageIndex{0} : action.stage, action.kind}, action.index};
}

/// Returns when the last member of each reduction has begun it.
std::map<std::pair<Kind, std::int32_t>, Duration> beginnings_of_reductions(
    const Timeline& timeline) {
  std::map<std::pair<Kind, std::int32_t>, Duration> begun;
  for (const TimedAction& timed : timeline.actions) {
    if (!reduces(timed.action.kind)) continue;
    Duration& last = begun.try_emplace(reduction_of(timed.action), timed.start).first->second;
    last = std::max(last, timed.start);
  }
  return begun;
}

/// Returns all lengths by kind and lane. A reduction takes until its end from when its last member
/// has begun it, for which the others wait. Several lanes may make a transfer together, so for
/// transfers there is one length per micro-batch, from the first start to the last end, all stored
/// under one lane.
std::map<Kind, LanesOfKind> lengths_by_lane(const Timeline& timeline) {
  std::map<Kind, LanesOfKind> lengths;
  std::map<std::pair<Kind, std::int32_t>, std::pair<Duration, Duration>> spans;
  const auto begun = beginnings_of_reductions(timeline);
  for (const TimedAction& timed : timeline.actions) {
    const Kind kind{timed.action.stage, timed.action.kind};
    if (!is_transfer(kind.kind)) {
      Duration start = timed.start;
      if (reduces(kind.kind)) start = std::min(timed.end, begun.at(reduction_of(timed.action)));
      lengths[kind][timed.lane].push_back({timed.action.index, timed.end - start});
      continue;
    }
    const auto [found, is_new] =
        spans.try_emplace({kind, timed.action.index}, timed.start, timed.end);
    if (is_new) continue;
    found->second.first = std::min(found->second.first, timed.start);
    found->second.second = std::max(found->second.second, timed.end);
  }
  for (const auto& [key, span] : spans) {
    lengths[key.first][LaneIndex{}].push_back({key.second, span.second - span.first});
  }
  return lengths;
}

Length length_of(const LanesOfKind& lanes) {
  Length length;
  for (const auto& [lane, all] : lanes) {
    length.count = std::max(length.count, static_cast<std::int64_t>(all.size()));
    length.median = std::max(length.median, median_of(all));
  }
  return length;
}

Duration distance(const LengthComparison::Single& single) {
  return std::max(single.predicted, single.measured) - std::min(single.predicted, single.measured);
}

/// Returns for each lane of the measured timeline the lane of the predicted one that has its first
/// device; those without one are left out. Replicas that run together share a predicted lane.
std::map<LaneIndex, LaneIndex> predicted_lanes(const Timeline& predicted,
                                               const Timeline& measured) {
  std::map<DeviceIndex, LaneIndex> lane_of;
  for (std::size_t lane = 0; lane < predicted.lanes.size(); ++lane) {
    for (const DeviceIndex device : predicted.lanes[lane].devices) {
      lane_of.try_emplace(device, index_at<LaneIndex>(lane));
    }
  }
  std::map<LaneIndex, LaneIndex> lanes;
  for (std::size_t lane = 0; lane < measured.lanes.size(); ++lane) {
    const auto found = lane_of.find(measured.lanes[lane].devices.front());
    if (found != lane_of.end()) lanes.emplace(index_at<LaneIndex>(lane), found->second);
  }
  return lanes;
}

/// Returns the action of one kind and stage whose lengths differ most; actions that only one of the
/// timelines has are left out. `lanes` are the predicted_lanes(). O(actions log actions).
LengthComparison::Single farthest_of(const LanesOfKind& predicted, const LanesOfKind& measured,
                                     ActionKind kind, const std::map<LaneIndex, LaneIndex>& lanes) {
  std::map<std::pair<LaneIndex, std::int32_t>, Duration> foreseen;
  for (const auto& [lane, all] : predicted) {
    for (const SingleLength& one : all) foreseen.try_emplace({lane, one.index}, one.length);
  }
  std::optional<LengthComparison::Single> farthest;
  for (const auto& [lane, all] : measured) {
    const auto own = lanes.find(lane);
    // Transfers are all stored under one lane.
    if (!is_transfer(kind) && own == lanes.end()) continue;
    for (const SingleLength& one : all) {
      const auto same = foreseen.find({is_transfer(kind) ? lane : own->second, one.index});
      if (same == foreseen.end()) continue;
      const LengthComparison::Single both{one.index, same->second, one.length};
      if (!farthest || distance(both) > distance(*farthest)) farthest = both;
    }
  }
  return farthest.value_or(LengthComparison::Single{});
}

Duration waiting_on_path(const Timeline& timeline) {
  for (const PathShare& share : shares_of(timeline, analyse(timeline).path)) {
    if (!share.kind) return share.time;
  }
  return {};
}

}  // namespace

TimelineComparison compare_timelines(const Timeline& predicted, const Timeline& measured) {
  TimelineComparison comparison{.predicted = iteration_time(predicted),
                                .measured = iteration_time(measured),
                                .lengths = {},
                                .predicted_waiting = waiting_on_path(predicted),
                                .measured_waiting = waiting_on_path(measured)};
  const std::map<Kind, LanesOfKind> found = lengths_by_lane(measured);
  const std::map<LaneIndex, LaneIndex> lanes = predicted_lanes(predicted, measured);
  for (const auto& [kind, expected] : lengths_by_lane(predicted)) {
    const auto same = found.find(kind);
    if (same == found.end()) continue;
    const Length foreseen = length_of(expected);
    comparison.lengths.push_back(
        {.stage = kind.stage,
         .kind = kind.kind,
         .count = foreseen.count,
         .predicted = foreseen.median,
         .measured = length_of(same->second).median,
         .farthest = farthest_of(expected, same->second, kind.kind, lanes)});
  }
  return comparison;
}

std::vector<LengthComparison> slower_than_predicted(const TimelineComparison& comparison) {
  std::vector<LengthComparison> slower;
  for (const LengthComparison& length : comparison.lengths) {
    const bool is_much = 10 * (length.measured - length.predicted) >= length.predicted;
    const bool matters = 100 * length.beyond() >= comparison.predicted;
    if (is_much && matters && length.beyond() > Duration{}) slower.push_back(length);
  }
  std::stable_sort(slower.begin(), slower.end(),
                   [](const auto& a, const auto& b) { return a.beyond() > b.beyond(); });
  return slower;
}

}  // namespace dapple
