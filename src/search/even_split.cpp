#include "dapple/search/even_split.h"

#include <algorithm>

namespace dapple {

std::vector<LayerRange> even_split(const LayerTable& table, std::int32_t layers,
                                   std::int32_t stages) {
  const auto load_until = [&](std::int32_t end) {
    return Wide{(table.forward({0, end}) + table.backward({0, end})).ns};
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

/// Whether the first `end` layers can be cut into `stages` stages that take less than `limit` each,
/// none empty: so they can if each stage takes as many layers as it can. O(stages * log layers).
bool fit_below(Duration limit, std::int32_t stages, std::int32_t end, const TimeOfStage& time_of) {
  std::int32_t begin = 0;
  for (std::int32_t s = 0; s < stages; ++s) {
    // Layers left over would all be behind the last stage.
    const std::int32_t most = end - (stages - 1 - s);
    std::int32_t fits = begin;
    for (std::int32_t step = 1; fits < most; step *= 2) {
      const std::int32_t next = std::min(most, fits + step);
      if (time_of(s, {begin, next}) >= limit) {
        std::int32_t too_many = next;
        while (too_many - fits > 1) {
          const std::int32_t middle = fits + (too_many - fits) / 2;
          (time_of(s, {begin, middle}) < limit ? fits : too_many) = middle;
        }
        break;
      }
      fits = next;
    }
    if (fits == begin) return false;
    begin = fits;
  }
  return begin == end;
}

}  // namespace

std::vector<LayerRange> balanced_split(std::int32_t layers, std::int32_t stages,
                                       const TimeOfStage& time_of) {
  std::vector<LayerRange> ranges(static_cast<std::size_t>(stages));
  std::int32_t end = layers;
  for (std::int32_t s = stages - 1; s >= 0; --s) {
    // With a later cut the stages before it get slower and this one faster: the best cut is the
    // first at which those are no faster, or the one before.
    std::int32_t low = s;
    std::int32_t high = s == 0 ? 0 : end - 1;
    while (low < high) {
      const std::int32_t middle = low + (high - low) / 2;
      if (fit_below(time_of(s, {middle, end}), s, middle, time_of)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    if (low > s) {
      const Duration earlier = time_of(s, {low - 1, end});
      const bool is_as_good =
          earlier <= time_of(s, {low, end}) || !fit_below(earlier, s, low, time_of);
      if (is_as_good) --low;
    }
    ranges[static_cast<std::size_t>(s)] = {low, end};
    end = low;
  }
  return ranges;
}

}  // namespace dapple
