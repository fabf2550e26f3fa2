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

std::vector<LayerRange> balanced_split(
    std::int32_t layers, std::int32_t stages,
    const std::function<Duration(std::int32_t stage, LayerRange layers)>& time_of) {
  struct Choice {
    Duration slowest{INT64_MAX};
    std::int32_t begin = 0;  // of the last stage
  };
  const auto at = [](std::int32_t position) { return static_cast<std::size_t>(position); };
  // best[s][end]: the first `end` layers in s + 1 stages, none empty.
  std::vector<std::vector<Choice>> best(at(stages), std::vector<Choice>(at(layers) + 1));
  for (std::int32_t end = 1; end <= layers; ++end) best[0][at(end)].slowest = time_of(0, {0, end});
  for (std::int32_t s = 1; s < stages; ++s) {
    const std::vector<Choice>& before = best[at(s) - 1];
    for (std::int32_t end = s + 1; end <= layers; ++end) {
      // With a later cut the stages before it get slower and the last one faster: the best cut is
      // the first at which those are no faster, or the one before.
      std::int32_t low = s;
      std::int32_t high = end - 1;
      while (low < high) {
        const std::int32_t middle = low + (high - low) / 2;
        if (before[at(middle)].slowest >= time_of(s, {middle, end})) {
          high = middle;
        } else {
          low = middle + 1;
        }
      }
      Choice& choice = best[at(s)][at(end)];
      for (const std::int32_t begin : {low - 1, low}) {
        if (begin < s) continue;
        const Duration slowest = std::max(before[at(begin)].slowest, time_of(s, {begin, end}));
        if (slowest < choice.slowest) choice = {.slowest = slowest, .begin = begin};
      }
    }
  }
  std::vector<LayerRange> ranges(at(stages));
  std::int32_t end = layers;
  for (std::int32_t s = stages; s-- > 0;) {
    const std::int32_t begin = s == 0 ? 0 : best[at(s)][at(end)].begin;
    ranges[at(s)] = {begin, end};
    end = begin;
  }
  return ranges;
}

}  // namespace dapple
