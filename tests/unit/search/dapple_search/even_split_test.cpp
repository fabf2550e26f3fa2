#include "dapple/search/dapple_search/even_split.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <numeric>

#include "../../../support/dice.h"
#include "../../../support/plans.h"

using namespace dapple;

namespace {

Duration sum(const std::vector<std::int64_t>& times, LayerRange layers) {
  return {
      std::accumulate(times.begin() + layers.begin, times.begin() + layers.end, std::int64_t{0})};
}

/// The slowest stage of the best cut, by trying all.
Duration best_slowest(const std::vector<std::int64_t>& times, std::int32_t begin,
                      std::int32_t stages) {
  const auto layers = static_cast<std::int32_t>(times.size());
  if (stages == 1) return sum(times, {begin, layers});
  Duration best = Duration::infinite();
  for (std::int32_t end = begin + 1; layers - end >= stages - 1; ++end) {
    best = std::min(best, std::max(sum(times, {begin, end}), best_slowest(times, end, stages - 1)));
  }
  return best;
}

/// Tries every cut before the last stage, and splits the layers before it in the same way; of
/// equally good cuts the first is taken.
std::vector<LayerRange> split_by_trial(
    std::int32_t end, std::int32_t stages,
    const std::function<Duration(std::int32_t, LayerRange)>& time_of) {
  const auto slowest_of = [&](std::int32_t layers, std::int32_t count) {
    Duration slowest;
    const std::vector<LayerRange> ranges = split_by_trial(layers, count, time_of);
    for (std::size_t s = 0; s < ranges.size(); ++s) {
      slowest = std::max(slowest, time_of(static_cast<std::int32_t>(s), ranges[s]));
    }
    return slowest;
  };
  const std::int32_t last = stages - 1;
  if (last == 0) return {{0, end}};
  const auto slowest_with = [&](std::int32_t begin) {
    return std::max(slowest_of(begin, last), time_of(last, {begin, end}));
  };
  std::int32_t cut = last;
  for (std::int32_t later = last + 1; later < end; ++later) {
    if (slowest_with(later) < slowest_with(cut)) cut = later;
  }
  std::vector<LayerRange> ranges = split_by_trial(cut, last, time_of);
  ranges.push_back({cut, end});
  return ranges;
}

}  // namespace

TEST_CASE("even stages end where their part of the time is reached, and none is empty") {
  // 60 in all; thirds are reached behind the first layer (30), the second (40) and the last.
  const ModelProfile profile = small::model_of({{.forward = 10, .backward = 20},
                                                {.forward = 5, .backward = 5},
                                                {.forward = 5, .backward = 5},
                                                {.forward = 5, .backward = 5}});
  const LayerTable table(profile, 1, kOne);
  CHECK(search::even_split(table, 4, 3) == std::vector<LayerRange>{{0, 1}, {1, 2}, {2, 4}});
  CHECK(search::even_split(table, 4, 2) == std::vector<LayerRange>{{0, 1}, {1, 4}});
  CHECK(search::even_split(table, 4, 4) == std::vector<LayerRange>{{0, 1}, {1, 2}, {2, 3}, {3, 4}});
}

TEST_CASE("no cut has a faster slowest stage than the balanced one") {
  small::Dice dice(11);
  for (int i = 0; i < 500; ++i) {
    std::vector<std::int64_t> times;
    for (std::int64_t l = dice.roll(1, 9); l > 0; --l) times.push_back(dice.roll(0, 20));
    const auto layers = static_cast<std::int32_t>(times.size());
    const auto stages = static_cast<std::int32_t>(dice.roll(1, layers));
    const std::vector<LayerRange> ranges = search::balanced_split(
        layers, stages, [&](std::int32_t, LayerRange range) { return sum(times, range); });
    REQUIRE(ranges.size() == static_cast<std::size_t>(stages));
    Duration slowest;
    std::int32_t begin = 0;
    for (const LayerRange& range : ranges) {
      CHECK(range.begin == begin);
      CHECK(range.size() >= 1);
      begin = range.end;
      slowest = std::max(slowest, sum(times, range));
    }
    CHECK(begin == layers);
    CHECK(slowest == best_slowest(times, 0, stages));
  }
}

TEST_CASE("of equally balanced splits the one with the most layers in the last stages is taken") {
  small::Dice dice(12);
  for (int i = 0; i < 300; ++i) {
    std::vector<std::int64_t> times;
    for (std::int64_t l = dice.roll(1, 7); l > 0; --l) times.push_back(dice.roll(0, 4));
    const auto layers = static_cast<std::int32_t>(times.size());
    const auto stages = static_cast<std::int32_t>(dice.roll(1, layers));
    const auto time_of = [&](std::int32_t, LayerRange range) { return sum(times, range); };
    CHECK(search::balanced_split(layers, stages, time_of) ==
          split_by_trial(layers, stages, time_of));
  }
}
