#include "dapple/timeline/timeline.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace dapple {
namespace {

bool is_computation(const TimedAction& timed) {
  return stream_of(timed.action.kind) == Stream::Compute;
}

/// The changes of the memory in use of a stage that a computation causes.
struct Holding {
  std::int64_t micro_batches = 0;
  std::int64_t recomputed_stashes = 0;
};

Holding taken_at_start(ActionKind kind) {
  if (kind == ActionKind::Forward) return {.micro_batches = 1};
  return makes_input_gradient(kind) ? Holding{.recomputed_stashes = 1} : Holding{};
}

Holding taken_at_end(ActionKind kind) {
  return makes_weight_gradient(kind) ? Holding{.micro_batches = -1, .recomputed_stashes = -1}
                                     : Holding{};
}

Bytes size_of(const Holding& holding, StageIndex stage, const DeviceMemory& device) {
  const auto memory = std::lower_bound(
      device.stages.begin(), device.stages.end(), stage,
      [](const StageMemory& some, StageIndex wanted) { return some.stage < wanted; });
  if (memory == device.stages.end() || memory->stage != stage) return {};
  return holding.micro_batches * memory->per_micro_batch +
         holding.recomputed_stashes * memory->recompute_stash;
}

/// A change of the memory in use of a lane from `time` on.
struct Change {
  Duration time;
  StageIndex stage;
  Holding holding;
};

/// Returns the changes of one lane by time. Computations on a lane run one after another, so a
/// stable sort leaves releases before allocations at equal times, even for computations of length
/// zero.
std::vector<Change> changes_of(const Timeline& timeline, LaneIndex lane) {
  std::vector<Change> changes;
  for (const TimedAction& timed : timeline.actions) {
    if (timed.lane != lane || !is_computation(timed)) continue;
    const Action& action = timed.action;
    changes.push_back({timed.start, action.stage, taken_at_start(action.kind)});
    changes.push_back({timed.end, action.stage, taken_at_end(action.kind)});
  }
  std::stable_sort(changes.begin(), changes.end(),
                   [](const Change& a, const Change& b) { return a.time < b.time; });
  return changes;
}

bool comes_before(const TimedAction& a, const TimedAction& b) {
  return std::tuple(a.start, a.lane, stream_of(a.action.kind), a.end) <
         std::tuple(b.start, b.lane, stream_of(b.action.kind), b.end);
}

}  // namespace

namespace {

/// Sorts by stable insertion; gives up and returns false after `moves` moves.
bool insert_in_order(std::vector<TimedAction>& actions, std::int64_t moves) {
  for (std::size_t i = 1; i < actions.size() && moves > 0; ++i) {
    if (!comes_before(actions[i], actions[i - 1])) continue;
    const TimedAction moved = actions[i];
    std::size_t place = i;
    for (; place > 0 && comes_before(moved, actions[place - 1]); --place, --moves) {
      actions[place] = actions[place - 1];
    }
    actions[place] = moved;
  }
  return moves > 0;
}

/// Sorts stably by start with a radix sort of kBits bits per digit, least significant digit first.
/// O(actions) for each digit of the latest start.
void sort_by_start(std::vector<TimedAction>& actions) {
  constexpr int kBits = 11;
  constexpr std::uint64_t kDigits = std::uint64_t{1} << kBits;
  struct Place {
    std::uint64_t start;
    std::size_t position;
  };
  const auto [first, last] = std::minmax_element(
      actions.begin(), actions.end(),
      [](const TimedAction& a, const TimedAction& b) { return a.start < b.start; });
  // The differences of signed 64-bit numbers may need 64 bits, so they are unsigned.
  const auto since_first = [from = static_cast<std::uint64_t>(first->start.ns)](Duration start) {
    return static_cast<std::uint64_t>(start.ns) - from;
  };
  const std::uint64_t longest = since_first(last->start);
  std::vector<Place> places;
  places.reserve(actions.size());
  for (std::size_t i = 0; i < actions.size(); ++i) {
    places.push_back({since_first(actions[i].start), i});
  }
  std::vector<Place> sorted(places.size());
  for (int shift = 0; shift < 64 && (longest >> shift) != 0; shift += kBits) {
    std::array<std::size_t, kDigits> next{};
    const auto digit_of = [&](const Place& place) { return (place.start >> shift) % kDigits; };
    for (const Place& place : places) ++next[digit_of(place)];
    std::exclusive_scan(next.begin(), next.end(), next.begin(), std::size_t{0});
    for (const Place& place : places) sorted[next[digit_of(place)]++] = place;
    places.swap(sorted);
  }
  std::vector<TimedAction> in_order;
  in_order.reserve(actions.size());
  for (const Place& place : places) in_order.push_back(actions[place.position]);
  actions = std::move(in_order);
}

/// Sorts actions with the same start, stably. Most groups are small and are sorted by insertion,
/// which needs no additional memory.
template <class Place>
void sort_group(Place begin, Place end) {
  constexpr std::ptrdiff_t kFew = 16;
  if (end - begin > kFew) {
    std::stable_sort(begin, end, comes_before);
    return;
  }
  for (Place next = begin; next != end; ++next) {
    std::rotate(std::upper_bound(begin, next, *next, comes_before), next, std::next(next));
  }
}

}  // namespace

void sort_actions(Timeline& timeline) {
  std::vector<TimedAction>& actions = timeline.actions;
  if (actions.size() < 2) return;
  // A simulation records actions nearly in order, so insertion moves each of them a few places.
  constexpr std::int64_t kMovesOfEach = 4;
  if (insert_in_order(actions, kMovesOfEach * static_cast<std::int64_t>(actions.size()))) return;
  sort_by_start(actions);
  const auto starts_apart = [](const TimedAction& a, const TimedAction& b) {
    return a.start != b.start;
  };
  for (auto begin = actions.begin(); begin != actions.end();) {
    auto end = std::adjacent_find(begin, actions.end(), starts_apart);
    if (end != actions.end()) ++end;
    sort_group(begin, end);
    begin = end;
  }
}

Duration iteration_time(const Timeline& timeline) {
  Duration end;
  for (const TimedAction& timed : timeline.actions) end = std::max(end, timed.end);
  return end;
}

Duration busy_time(const Timeline& timeline, LaneIndex lane) {
  Duration busy;
  for (const TimedAction& timed : timeline.actions) {
    if (timed.lane == lane && is_computation(timed)) busy += timed.end - timed.start;
  }
  return busy;
}

std::vector<Duration> busy_times(const Timeline& timeline) {
  std::vector<Duration> busy(timeline.lanes.size());
  for (const TimedAction& timed : timeline.actions) {
    if (is_computation(timed)) busy[timed.lane.position()] += timed.end - timed.start;
  }
  return busy;
}

double bubble_fraction(const Timeline& timeline) {
  return bubble_fraction(timeline, iteration_time(timeline), busy_times(timeline));
}

double bubble_fraction(const Timeline& timeline, Duration iteration,
                       const std::vector<Duration>& busy) {
  Wide device_time = 0;
  Wide busy_device_time = 0;
  for (std::size_t l = 0; l < timeline.lanes.size(); ++l) {
    const auto devices = static_cast<std::int64_t>(timeline.lanes[l].devices.size());
    device_time += Wide{iteration.ns} * devices;
    busy_device_time += Wide{busy[l].ns} * devices;
  }
  if (device_time == 0) return 0;
  return static_cast<double>(device_time - busy_device_time) / static_cast<double>(device_time);
}

std::vector<std::int32_t> rows_of(const Timeline& timeline) {
  std::map<std::pair<LaneIndex, Stream>, std::vector<Duration>> row_ends;
  std::vector<std::int32_t> rows;
  rows.reserve(timeline.actions.size());
  for (const TimedAction& timed : timeline.actions) {
    std::vector<Duration>& ends = row_ends[{timed.lane, stream_of(timed.action.kind)}];
    const auto free = std::find_if(ends.begin(), ends.end(),
                                   [&timed](Duration end) { return end <= timed.start; });
    rows.push_back(static_cast<std::int32_t>(free - ends.begin()));
    if (free == ends.end()) {
      ends.push_back(timed.end);
    } else {
      *free = timed.end;
    }
  }
  return rows;
}

std::vector<MemoryPoint> memory_over_time(const Timeline& timeline, const DeviceMemory& device) {
  std::vector<MemoryPoint> points{{.time = Duration{}, .held = device.fixed}};
  bool last_was_taken = false;
  for (const Change& change : changes_of(timeline, device.lane)) {
    const Bytes taken = size_of(change.holding, change.stage, device);
    if (taken.count == 0) continue;
    const bool is_taken = taken.count > 0;
    const Bytes held = points.back().held + taken;
    // Memory that is allocated and released at the same time was in use, so it gets its own point.
    if (change.time == points.back().time && (is_taken || !last_was_taken)) {
      points.back().held = held;
    } else {
      points.push_back({.time = change.time, .held = held});
    }
    last_was_taken = is_taken;
  }
  return points;
}

Bytes peak_memory(const Timeline& timeline, const DeviceMemory& device) {
  Bytes peak = device.fixed;
  for (const MemoryPoint& point : memory_over_time(timeline, device)) {
    peak = std::max(peak, point.held);
  }
  return peak;
}

Bytes peak_memory(const Lane& lane, const DeviceMemory& device) {
  Bytes held = device.fixed;
  Bytes peak = held;
  for (const Action& action : lane.actions) {
    held += size_of(taken_at_start(action.kind), action.stage, device);
    peak = std::max(peak, held);
    held += size_of(taken_at_end(action.kind), action.stage, device);
  }
  return peak;
}

std::int64_t most_in_flight(const Timeline& timeline, LaneIndex lane) {
  std::int64_t in_flight = 0;
  std::int64_t most = 0;
  for (const Change& change : changes_of(timeline, lane)) {
    in_flight += change.holding.micro_batches;
    most = std::max(most, in_flight);
  }
  return most;
}

}  // namespace dapple
