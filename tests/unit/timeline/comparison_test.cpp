#include "dapple/timeline/comparison.h"

#include <catch2/catch.hpp>

#include "example.h"

namespace dapple {
namespace {

using K = ActionKind;

TimedAction action(std::int32_t lane, K kind, std::int32_t index, std::int64_t start,
                   std::int64_t end, std::int32_t stage = 0) {
  return {.lane = LaneIndex{lane},
          .action = {kind, index, StageIndex{stage}},
          .start = Duration{start},
          .end = Duration{end},
          .size = {}};
}

const LengthComparison& find(const TimelineComparison& comparison, K kind) {
  for (const LengthComparison& length : comparison.lengths) {
    if (length.kind == kind) return length;
  }
  throw Bug("no such kind");
}

TEST_CASE("of computations the median is compared, on the device where it is longest") {
  const Timeline predicted{
      .lanes = {{{StageIndex{0}}, {DeviceIndex{0}, DeviceIndex{1}}}},
      .actions = {action(0, K::Forward, 0, 0, 10), action(0, K::Forward, 1, 10, 20),
                  action(0, K::Forward, 2, 20, 30)},
      .memory = {}};
  // Device 0 takes 10, 11, 50; device 1 takes 12, 13, 14.
  const Timeline measured{
      .lanes = {{{StageIndex{0}}, {DeviceIndex{0}}}, {{StageIndex{0}}, {DeviceIndex{1}}}},
      .actions = {action(0, K::Forward, 0, 0, 10), action(0, K::Forward, 1, 10, 21),
                  action(0, K::Forward, 2, 21, 71), action(1, K::Forward, 0, 0, 12),
                  action(1, K::Forward, 1, 12, 25), action(1, K::Forward, 2, 25, 39)},
      .memory = {}};
  const TimelineComparison comparison = compare_timelines(predicted, measured);
  CHECK(comparison.predicted == Duration{30});
  CHECK(comparison.measured == Duration{71});
  REQUIRE(comparison.lengths.size() == 1);
  CHECK(comparison.lengths[0].count == 3);
  CHECK(comparison.lengths[0].predicted == Duration{10});
  CHECK(comparison.lengths[0].measured == Duration{13});
  CHECK(comparison.lengths[0].beyond() == Duration{9});
  // The median hides the last forward of device 0.
  CHECK(comparison.lengths[0].farthest.index == 2);
  CHECK(comparison.lengths[0].farthest.predicted == Duration{10});
  CHECK(comparison.lengths[0].farthest.measured == Duration{50});
}

TEST_CASE("each replica is compared with the prediction of its own device") {
  const std::vector<Timeline::LaneName> lanes{{{StageIndex{0}}, {DeviceIndex{4}}},
                                              {{StageIndex{0}}, {DeviceIndex{2}}}};
  const Timeline predicted{
      .lanes = lanes,
      .actions = {action(0, K::Forward, 0, 0, 10), action(0, K::Forward, 1, 10, 20),
                  action(1, K::Forward, 0, 0, 30), action(1, K::Forward, 1, 30, 60)},
      .memory = {}};
  // The lanes stand in the other order, and only one action takes less time than predicted.
  const Timeline measured{
      .lanes = {lanes[1], lanes[0]},
      .actions = {action(0, K::Forward, 0, 0, 30), action(0, K::Forward, 1, 30, 55),
                  action(1, K::Forward, 0, 0, 10), action(1, K::Forward, 1, 10, 21)},
      .memory = {}};
  const LengthComparison length = find(compare_timelines(predicted, measured), K::Forward);
  CHECK(length.farthest.index == 1);
  CHECK(length.farthest.predicted == Duration{30});
  CHECK(length.farthest.measured == Duration{25});
}

TEST_CASE("a transfer lasts from its first part's start to its last part's end") {
  const Timeline predicted{.lanes = {{{StageIndex{0}}, {DeviceIndex{0}, DeviceIndex{1}}}},
                           .actions = {action(0, K::SendActivation, 0, 5, 9)},
                           .memory = {}};
  const Timeline measured{
      .lanes = {{{StageIndex{0}}, {DeviceIndex{0}}}, {{StageIndex{0}}, {DeviceIndex{1}}}},
      .actions = {action(0, K::SendActivation, 0, 5, 8), action(1, K::SendActivation, 0, 7, 12)},
      .memory = {}};
  const LengthComparison length = find(compare_timelines(predicted, measured), K::SendActivation);
  CHECK(length.predicted == Duration{4});
  CHECK(length.measured == Duration{7});
  CHECK(length.farthest.predicted == Duration{4});
  CHECK(length.farthest.measured == Duration{7});
}

TEST_CASE("a reduction begins with its last member, of replicas and of tied stages") {
  const std::vector<Timeline::LaneName> lanes{{{StageIndex{0}}, {DeviceIndex{0}}},
                                              {{StageIndex{1}}, {DeviceIndex{1}}}};
  const Timeline predicted{
      .lanes = lanes,
      .actions = {action(0, K::AllReduce, 0, 20, 30), action(0, K::ReduceTied, 0, 40, 50),
                  action(1, K::ReduceTied, 0, 40, 50, 1)},
      .memory = {}};
  // Stage 1 is ready for the tied gradients long before stage 0, and waits for it.
  const Timeline measured{
      .lanes = lanes,
      .actions = {action(0, K::AllReduce, 0, 20, 32), action(0, K::ReduceTied, 0, 44, 55),
                  action(1, K::ReduceTied, 0, 10, 56, 1)},
      .memory = {}};
  const TimelineComparison comparison = compare_timelines(predicted, measured);
  REQUIRE(comparison.lengths.size() == 3);
  for (const LengthComparison& length : comparison.lengths) {
    CHECK(length.predicted == Duration{10});
    const bool waits = length.kind == K::ReduceTied && length.stage == StageIndex{1};
    CHECK(length.measured == Duration{waits || length.kind == K::AllReduce ? 12 : 11});
  }
}

TEST_CASE("what is slower by a tenth and matters is named, the costliest first") {
  Timeline predicted{
      .lanes = {{{StageIndex{0}, StageIndex{1}}, {DeviceIndex{0}}}}, .actions = {}, .memory = {}};
  Timeline measured = predicted;
  // Of an iteration of 1000: stage 0's forwards 10 more in all (a tenth), its backwards 9 more of
  // 100, stage 1's forwards 60 more, its step twice as long, which is 3 more.
  predicted.actions = {action(0, K::Forward, 0, 0, 100), action(0, K::Backward, 0, 100, 200),
                       action(0, K::Forward, 0, 200, 400, 1),
                       action(0, K::Backward, 0, 400, 997, 1),
                       action(0, K::OptimizerStep, 0, 997, 1000, 1)};
  measured.actions = {action(0, K::Forward, 0, 0, 110), action(0, K::Backward, 0, 110, 219),
                      action(0, K::Forward, 0, 219, 479, 1),
                      action(0, K::Backward, 0, 479, 1076, 1),
                      action(0, K::OptimizerStep, 0, 1076, 1082, 1)};
  const std::vector<LengthComparison> slower =
      slower_than_predicted(compare_timelines(predicted, measured));
  REQUIRE(slower.size() == 2);
  CHECK(slower[0].stage == StageIndex{1});
  CHECK(slower[0].kind == K::Forward);
  CHECK(slower[1].stage == StageIndex{0});
  CHECK(slower[1].kind == K::Forward);
  CHECK(slower_than_predicted(compare_timelines(predicted, predicted)).empty());
}

TEST_CASE("what a device waits for though it has all that it needs is told apart") {
  const Timeline predicted{
      .lanes = {{{StageIndex{0}}, {DeviceIndex{0}}}},
      .actions = {action(0, K::Forward, 0, 0, 100), action(0, K::Backward, 0, 100, 200)},
      .memory = {}};
  Timeline measured = predicted;
  measured.actions = {action(0, K::Forward, 0, 5, 105), action(0, K::Backward, 0, 135, 235)};
  const TimelineComparison comparison = compare_timelines(predicted, measured);
  CHECK(comparison.predicted_waiting == Duration{});
  CHECK(comparison.measured_waiting == Duration{35});  // 5 before the first, 30 between the two
}

}  // namespace
}  // namespace dapple
