#include <catch2/catch.hpp>

#include <utility>
#include <vector>

#include "dapple/timeline/timeline.h"
#include "example.h"

namespace dapple {
namespace {

using namespace small;
using K = ActionKind;

TEST_CASE("a timeline without actions is sorted as it is") {
  Timeline timeline;
  sort_actions(timeline);
  CHECK(timeline.actions.empty());
}

DeviceMemory memory_on(LaneIndex lane) {
  return {.device = DeviceIndex{0},
          .lane = lane,
          .fixed = {1000},
          .stages = {{.stage = StageIndex{lane.value},
                      .per_micro_batch = {100},
                      .recompute_stash = {7}}},
          .limit = {2000}};
}

std::vector<std::pair<std::int64_t, std::int64_t>> points_of(const Timeline& timeline,
                                                             const DeviceMemory& device) {
  std::vector<std::pair<std::int64_t, std::int64_t>> points;
  for (const MemoryPoint& point : memory_over_time(timeline, device)) {
    points.emplace_back(point.time.ns, point.held.count);
  }
  return points;
}

TEST_CASE("an iteration lasts to the last end of any action") {
  CHECK(iteration_time(two_stages()) == Duration{110});
  CHECK(iteration_time(Timeline{}) == Duration{0});
}

TEST_CASE("a lane is busy while it computes, not while it sends or reduces") {
  CHECK(busy_time(two_stages(), kLane0) == Duration{2 * 10 + 2 * 20 + 3});
  CHECK(busy_time(two_stages(), kLane1) == Duration{2 * 10 + 2 * 20});
}

TEST_CASE("the bubble counts every device of a lane") {
  // Busy: 2 devices * 63 + 1 device * 60 = 186 of 3 devices * 110 = 330.
  CHECK(bubble_fraction(two_stages()) == static_cast<double>(330 - 186) / 330.0);
}

TEST_CASE("the bubble of nothing is none") {
  CHECK(bubble_fraction(Timeline{}) == 0.0);
}

TEST_CASE("memory is held from a forward's start to its backward's end") {
  using Points = std::vector<std::pair<std::int64_t, std::int64_t>>;
  CHECK(points_of(two_stages(), memory_on(kLane0)) == Points{{0, 1000 + 100},
                                                             {10, 1000 + 200},
                                                             {50, 1000 + 200 + 7},
                                                             {70, 1000 + 100},
                                                             {80, 1000 + 100 + 7},
                                                             {100, 1000}});
  CHECK(peak_memory(two_stages(), memory_on(kLane0)) == Bytes{1207});
}

TEST_CASE("what ends at a moment is given back before what starts at it is taken") {
  // Lane 1 at 45: B0 gives back 107, F1 takes 100; never both.
  using Points = std::vector<std::pair<std::int64_t, std::int64_t>>;
  CHECK(points_of(two_stages(), memory_on(kLane1)) ==
        Points{{0, 1000}, {15, 1100}, {25, 1107}, {45, 1100}, {55, 1107}, {75, 1000}});
  CHECK(peak_memory(two_stages(), memory_on(kLane1)) == Bytes{1107});
}

TEST_CASE("what is taken and given back in no time still counts for the peak") {
  Timeline timeline;
  timeline.lanes = {{{StageIndex{0}}, {DeviceIndex{0}}}};
  timeline.actions = {timed(kLane0, {K::Forward, 0}, 0, 0), timed(kLane0, {K::Backward, 0}, 0, 0),
                      timed(kLane0, {K::Forward, 1}, 0, 0), timed(kLane0, {K::Backward, 1}, 0, 0)};
  // One at a time: fixed, one micro-batch, its recomputed stash.
  CHECK(peak_memory(timeline, memory_on(kLane0)) == Bytes{1107});
  CHECK(most_in_flight(timeline, kLane0) == 1);
  CHECK(memory_over_time(timeline, memory_on(kLane0)).back().held == Bytes{1000});
}

TEST_CASE("a lane that does nothing holds what is fixed") {
  using Points = std::vector<std::pair<std::int64_t, std::int64_t>>;
  CHECK(points_of(Timeline{}, memory_on(kLane0)) == Points{{0, 1000}});
}

TEST_CASE("micro-batches in flight are counted lane by lane") {
  CHECK(most_in_flight(two_stages(), kLane0) == 2);
  CHECK(most_in_flight(two_stages(), kLane1) == 1);
}

TEST_CASE("messages that overlap by their latency get rows of their own") {
  Timeline timeline;
  timeline.lanes = {{{StageIndex{0}}, {DeviceIndex{0}}}, {{StageIndex{1}}, {DeviceIndex{1}}}};
  // The third begins when the first ends: their row is free again.
  timeline.actions = {
      timed(kLane0, {K::SendActivation, 0}, 0, 10),  timed(kLane1, {K::SendGradient, 0}, 2, 12),
      timed(kLane0, {K::SendActivation, 1}, 5, 15),  timed(kLane0, {K::Forward, 2}, 5, 7),
      timed(kLane0, {K::SendActivation, 2}, 10, 20), timed(kLane0, {K::SendActivation, 3}, 12, 22)};
  CHECK(rows_of(timeline) == std::vector<std::int32_t>{0, 0, 1, 0, 0, 2});
  CHECK(rows_of(two_stages()) == std::vector<std::int32_t>(14, 0));
}

TEST_CASE("a message goes to the computation that takes in what it brings") {
  std::vector<std::pair<std::size_t, std::size_t>> messages;
  for (const Message& message : messages_of(two_stages())) {
    messages.emplace_back(message.transfer, message.receiver);
  }
  // Activations 2 and 4 to the forwards 3 and 6, gradients 7 and 10 to the backwards 8 and 11.
  CHECK(messages ==
        std::vector<std::pair<std::size_t, std::size_t>>{{2, 3}, {4, 6}, {7, 8}, {10, 11}});
}

}  // namespace
}  // namespace dapple
