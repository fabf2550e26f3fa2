#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "dapple/timeline/statistics.h"
#include "example.h"

namespace dapple {
namespace {

using namespace small;
using K = ActionKind;

/// "F0@0[0,10] SEND_F0@0[10,15] ?[15,16]": action, lane, time; "?" for what is not explained.
std::string text_of(const Timeline& timeline, const std::vector<PathSegment>& path) {
  std::string text;
  for (const PathSegment& segment : path) {
    if (!text.empty()) text += ' ';
    if (segment.action) {
      const TimedAction& timed = timeline.actions[*segment.action];
      text += std::string(to_string(timed.action.kind)) + std::to_string(timed.action.index) + '@' +
              std::to_string(timed.lane.value);
    } else {
      text += '?';
    }
    text += '[' + std::to_string(segment.begin.ns) + ',' + std::to_string(segment.end.ns) + ']';
  }
  return text;
}

TEST_CASE("idle time is split by what the next computation waits for") {
  const std::vector<LaneStatistics> lanes = analyse(two_stages()).lanes;
  REQUIRE(lanes.size() == 2);
  // 20-50 before B0: its gradient is computed until 45 and arrives at 50. 70-80 before B1: until
  // 75, at 80. 100-107 before the step: reduced. 25 + 5 + 5 + 5 + 7 = 110 - 63.
  CHECK(lanes[0].idle == IdleTime{{}, {25 + 5}, {5 + 5}, {7}, {}, {}});
  CHECK(lanes[0].idle.total() == Duration{47});
  // The first input is there at 15, the last computation ends at 75; between them no gap.
  CHECK(lanes[1].idle == IdleTime{{15}, {}, {}, {}, {}, {110 - 75}});
  // 2 devices * 47 + 50 = 3 devices * 110 - 186 busy.
  CHECK(idle_device_time(two_stages(), lanes).total() == Duration{144});
}

TEST_CASE("communication is exposed where its lane computes nothing beside it") {
  const std::vector<LaneStatistics> lanes = analyse(two_stages()).lanes;
  // Lane 0 sends in 10-15 (beside F1) and 20-25, receives in 45-50 and 75-80, reduces in 100-107.
  CHECK(lanes[0].communicating == Duration{5 + 5 + 5 + 5 + 7});
  CHECK(lanes[0].exposed == Duration{5 + 5 + 5 + 7});
  // Lane 1 receives in 10-15, before its first computation, and 20-25, sends in 45-50 and 75-80.
  CHECK(lanes[1].communicating == Duration{4 * 5});
  CHECK(lanes[1].exposed == Duration{5 + 5});
}

TEST_CASE("the critical path goes back over what each start waited for") {
  const Timeline timeline = two_stages();
  const std::vector<PathSegment> path = analyse(timeline).path;
  CHECK(text_of(timeline, path) ==
        "F0@0[0,10] SEND_F0@0[10,15] F0@1[15,25] B0@1[25,45] F1@1[45,55] B1@1[55,75] "
        "SEND_B1@1[75,80] B1@0[80,100] REDUCE_GRAD0@0[100,107] STEP0@0[107,110]");
  const std::vector<PathShare> shares = shares_of(timeline, path);
  // F 10 + 10 + 10, B 3 * 20, one activation, one gradient, the reduction, the step: 110.
  const std::vector<std::pair<K, std::int64_t>> expected{
      {K::Forward, 30},     {K::Backward, 60}, {K::SendActivation, 5},
      {K::SendGradient, 5}, {K::AllReduce, 7}, {K::OptimizerStep, 3}};
  REQUIRE(shares.size() == expected.size());
  for (std::size_t i = 0; i < shares.size(); ++i) {
    CHECK(shares[i].kind == expected[i].first);
    CHECK(shares[i].time.ns == expected[i].second);
  }
}

TEST_CASE("a message that waits for its link is explained by the message before it") {
  Timeline timeline;
  timeline.lanes = {{{StageIndex{0}}, {DeviceIndex{0}}}, {{StageIndex{1}}, {DeviceIndex{1}}}};
  // The link is busy with F0 for 20 of the 23 that it takes with its latency.
  timeline.actions = {
      timed(kLane0, {K::Forward, 0}, 0, 5),         timed(kLane0, {K::Forward, 1}, 5, 10),
      timed(kLane0, {K::SendActivation, 0}, 5, 28), timed(kLane0, {K::SendActivation, 1}, 25, 48),
      timed(kLane1, {K::Forward, 0}, 28, 30),       timed(kLane1, {K::Forward, 1}, 48, 50)};
  CHECK(text_of(timeline, analyse(timeline).path) ==
        "F0@0[0,5] SEND_F0@0[5,25] SEND_F1@0[25,48] F1@1[48,50]");
  CHECK(analyse(timeline).lanes[1].idle == IdleTime{{28}, {}, {18}, {}, {}, {}});
}

TEST_CASE("only the part of a backward that fills a bucket is on the path beside its reduction") {
  Timeline timeline;
  timeline.lanes = {{{StageIndex{0}}, {DeviceIndex{0}, DeviceIndex{1}}}};
  timeline.actions = {
      timed(kLane0, {K::Forward, 0}, 0, 10), timed(kLane0, {K::Backward, 0}, 10, 30),
      timed(kLane0, {K::AllReduce, 0}, 18, 40), timed(kLane0, {K::AllReduce, 1}, 40, 45),
      timed(kLane0, {K::OptimizerStep, 0}, 45, 46)};
  CHECK(text_of(timeline, analyse(timeline).path) ==
        "F0@0[0,10] B0@0[10,18] REDUCE_GRAD0@0[18,40] REDUCE_GRAD1@0[40,45] STEP0@0[45,46]");
  const LaneStatistics lane = analyse(timeline).lanes.front();
  CHECK(lane.idle == IdleTime{{}, {}, {}, {15}, {}, {}});
  CHECK(lane.exposed == Duration{15});
}

TEST_CASE("a replica that waits for another one's last backward waits for a stage") {
  Timeline timeline;
  timeline.lanes = {{{StageIndex{0}}, {DeviceIndex{0}}}, {{StageIndex{0}}, {DeviceIndex{1}}}};
  timeline.actions = {
      timed(kLane0, {K::Forward, 0}, 0, 5),         timed(kLane1, {K::Forward, 1}, 0, 8),
      timed(kLane0, {K::Backward, 0}, 5, 10),       timed(kLane1, {K::Backward, 1}, 8, 20),
      timed(kLane0, {K::AllReduce, 0}, 20, 26),     timed(kLane1, {K::AllReduce, 0}, 20, 26),
      timed(kLane0, {K::OptimizerStep, 0}, 26, 27), timed(kLane1, {K::OptimizerStep, 0}, 26, 27)};
  for (TimedAction& action : timeline.actions) action.action.stage = StageIndex{0};
  CHECK(analyse(timeline).lanes[0].idle == IdleTime{{}, {10}, {}, {6}, {}, {}});
  CHECK(text_of(timeline, analyse(timeline).path) ==
        "F1@1[0,8] B1@1[8,20] REDUCE_GRAD0@0[20,26] STEP0@0[26,27]");
}

TEST_CASE("what no rule explains is counted apart") {
  Timeline timeline;
  timeline.lanes = {{{StageIndex{0}}, {DeviceIndex{0}}}};
  // Measured: 2 before the first, 3 before the second though nothing was missing.
  timeline.actions = {timed(kLane0, {K::Forward, 0}, 2, 10),
                      timed(kLane0, {K::Backward, 0}, 13, 30)};
  CHECK(analyse(timeline).lanes[0].idle == IdleTime{{2}, {}, {}, {}, {3}, {}});
  const std::vector<PathSegment> path = analyse(timeline).path;
  CHECK(text_of(timeline, path) == "?[0,2] F0@0[2,10] ?[10,13] B0@0[13,30]");
  CHECK_FALSE(shares_of(timeline, path).back().kind);
  CHECK(shares_of(timeline, path).back().time == Duration{2 + 3});
}

TEST_CASE("a lane that computes 5 % longer than the median is no straggler, a longer one is") {
  const auto lanes_of = [](const std::vector<std::int64_t>& busy) {
    std::vector<LaneStatistics> lanes;
    for (const std::int64_t time : busy) lanes.push_back({{time}, {}, {}, {}});
    return lanes;
  };
  CHECK(stragglers(lanes_of({100, 105, 100})).empty());
  CHECK(stragglers(lanes_of({100, 106, 100})) == std::vector<LaneIndex>{LaneIndex{1}});
  // The median of four is (100 + 140) / 2 = 120, and 5 % more 126.
  CHECK(stragglers(lanes_of({140, 100, 100, 140})) ==
        std::vector<LaneIndex>{LaneIndex{0}, LaneIndex{3}});
  CHECK(stragglers({}).empty());
}

TEST_CASE("nothing has no statistics, and no path") {
  CHECK(analyse(Timeline{}).lanes.empty());
  CHECK(analyse(Timeline{}).path.empty());
  CHECK(shares_of(Timeline{}, {}).empty());
}

}  // namespace
}  // namespace dapple
