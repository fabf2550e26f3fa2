#include "dapple/search/dapple_search/even_split.h"

#include <algorithm>

namespace dapple::search {

std::vector<LayerRange> even_split(const LayerTable& table, std::int32_t layers,
                                   std::int32_t stages) {
  const auto load_until = [&](std::int32_t end) {
    return Wide{(table.least_forward({0, end}) + table.least_backward({0, end})).ns};
  };
  const Wide whole = load_until(layers);
  std::vector<LayerRange> ranges;
  std::int32_t begin = 0;
  for (std::int32_t s = 0; s < stages; ++s) {
    std::int32_t end = s + 1 == stages ? layers : begin + 1;
    const std::int32_t most = layers - (stages - 1 - s);
    while (end < most && load_until(end) * stages < whole * (s + 1)) ++end;
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

namespace {

using TimeOfStage = std::function<Duration(std::int32_t stage, LayerRange layers)>;

/// Returns, for every number of stages from 0 to `stages`, how many of the first layers these hold
/// at most if each of them takes less than `limit`. O(stages * log layers).
std::vector<std::int32_t> reach_below(Duration limit, std::int32_t stages, std::int32_t layers,
                                      const TimeOfStage& time_of) {
  std::vector<std::int32_t> ends{0};
  for (std::int32_t s = 0; s < stages; ++s) {
    const std::int32_t begin = ends.back();
    std::int32_t end = begin;
    for (std::int32_t step = 1; end < layers; step *= 2) {
      const std::int32_t next = std::min(layers, end + step);
      if (time_of(s, {begin, next}) >= limit) {
        std::int32_t too_many = next;
        while (too_many - end > 1) {
          const std::int32_t middle = end + (too_many - end) / 2;
          (time_of(s, {begin, middle}) < limit ? end : too_many) = middle;
        }
        break;
      }
      end = next;
    }
    ends.push_back(end);
  }
  return ends;
}

/// The time of the slowest of `stages` stages that hold the first `layers` layers. Stage s ends at
/// ends[s + 1].
Duration slowest_of(const std::vector<std::int32_t>& ends, std::int32_t stages, std::int32_t layers,
                    const TimeOfStage& time_of) {
  Duration slowest;
  for (std::int32_t s = 0; s < stages; ++s) {
    const auto i = static_cast<std::size_t>(s);
    if (ends[i] >= layers) break;
    slowest = std::max(slowest, time_of(s, {ends[i], std::min(layers, ends[i + 1])}));
  }
  return slowest;
}

/// The least possible time of the slowest of `stages` stages that hold the first `layers` layers,
/// where `reached` is a time that some split attains. It is found by a bisection in which each
/// trial moves a bound to a time that some stage takes. O(log time * stages * log layers).
Duration least_slowest(std::int32_t stages, std::int32_t layers, Duration reached,
                       const TimeOfStage& time_of) {
  Duration low;
  Duration high = reached;
  // The first trial is with `reached` itself, as there is seldom a better split.
  Duration limit = reached;
  while (low < high) {
    const std::vector<std::int32_t> ends = reach_below(limit, stages, layers, time_of);
    if (ends.back() == layers) {
      high = slowest_of(ends, stages, layers, time_of);
    } else {
      // While no stage takes as long as one of these would with one layer more, the layers do not
      // fit.
      Duration next = high;
      for (std::int32_t s = 0; s < stages; ++s) {
        const auto i = static_cast<std::size_t>(s);
        next = std::min(next, time_of(s, {ends[i], ends[i + 1] + 1}));
      }
      low = next;
    }
    limit = {low.ns + (high.ns - low.ns) / 2 + 1};
  }
  return high;
}

}  // namespace

std::vector<LayerRange> balanced_split(std::int32_t layers, std::int32_t stages,
                                       const TimeOfStage& time_of) {
  std::vector<LayerRange> ranges(static_cast<std::size_t>(stages));
  std::int32_t end = layers;
  Duration slowest = least_slowest(stages, layers, time_of(0, {0, layers}), time_of);
  std::vector<std::int32_t> below = reach_below(slowest, stages, layers, time_of);
  for (std::int32_t s = stages - 1; s > 0; --s) {
    // Finds the first cut at which the stage behind it takes no longer than `slowest`.
    std::int32_t low = s;
    std::int32_t high = end - 1;
    while (low < high) {
      const std::int32_t middle = low + (high - low) / 2;
      if (time_of(s, {middle, end}) <= slowest) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    ranges[static_cast<std::size_t>(s)] = {low, end};
    end = low;
    if (below[static_cast<std::size_t>(s)] >= end) {
      // No stage in front has to be that slow.
      slowest = least_slowest(s, end, slowest_of(below, s, end, time_of), time_of);
      below = reach_below(slowest, s, end, time_of);
    }
  }
  ranges.front() = {0, end};
  return ranges;
}

}  // namespace dapple::search
