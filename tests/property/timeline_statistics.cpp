// What holds for the statistics of any plan's timeline.

#include <catch2/catch.hpp>

#include <map>
#include <tuple>

#include "../support/random_pipeline.h"
#include "dapple/timeline/statistics.h"

namespace dapple {
namespace {

using namespace small;

constexpr Contention kModes[] = {Contention::Shared, Contention::Off};

void check_idle(const Timeline& timeline) {
  const std::vector<LaneStatistics> lanes = analyse(timeline).lanes;
  REQUIRE(lanes.size() == timeline.lanes.size());
  for (std::size_t l = 0; l < lanes.size(); ++l) {
    const LaneStatistics& lane = lanes[l];
    REQUIRE(lane.busy == busy_time(timeline, index_at<LaneIndex>(l)));
    REQUIRE((lane.busy + lane.idle.total()).ns == iteration_time(timeline).ns);
    for (const IdleCause& cause : kIdleCauses) REQUIRE((lane.idle.*cause.part).ns >= 0);
    // A simulated computation starts as soon as its input is there and its lane free.
    REQUIRE(lane.idle.other.ns == 0);
    REQUIRE(lane.exposed <= lane.communicating);
    REQUIRE((lane.busy + lane.exposed).ns <= iteration_time(timeline).ns);
  }
}

void check_path(const Timeline& timeline, bool is_explained) {
  Duration moment;
  for (const PathSegment& segment : analyse(timeline).path) {
    REQUIRE(segment.begin == moment);
    REQUIRE(segment.begin < segment.end);
    moment = segment.end;
    if (is_explained) REQUIRE(segment.action);
    if (!segment.action) continue;
    const TimedAction& timed = timeline.actions[*segment.action];
    REQUIRE(segment.begin == timed.start);
    REQUIRE(segment.end <= timed.end);
  }
  REQUIRE(moment == iteration_time(timeline));
  Duration shares;
  for (const PathShare& share : shares_of(timeline, analyse(timeline).path)) shares += share.time;
  REQUIRE(shares == moment);
}

TEST_CASE("the causes of idle time add up to it, and each wait of a simulation has a cause") {
  Dice dice(31);
  for (int i = 0; i < scaled(600); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {.slowdown = true, .deal = true});
    INFO("instance " << i << ": " << text_of(pipeline));
    for (const Contention contention : kModes) check_idle(pipeline.run(contention).timeline);
  }
}

TEST_CASE("the critical path is as long as the iteration, without a gap or an unexplained wait") {
  Dice dice(32);
  for (int i = 0; i < scaled(600); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {.slowdown = true});
    INFO("instance " << i << ": " << text_of(pipeline));
    for (const Contention contention : kModes) check_path(pipeline.run(contention).timeline, true);
  }
}

TEST_CASE("where micro-batches are dealt only waits for a link can be without an explanation") {
  Dice dice(33);
  for (int i = 0; i < scaled(300); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {.slowdown = true, .deal = true});
    INFO("instance " << i << ": " << text_of(pipeline));
    for (const Contention contention : kModes) {
      const Timeline timeline = pipeline.run(contention).timeline;
      check_path(timeline, false);
      const std::vector<PathSegment> path = analyse(timeline).path;
      for (std::size_t s = 0; s < path.size(); ++s) {
        if (path[s].action) continue;
        REQUIRE(s + 1 < path.size());
        const Stream behind = stream_of(timeline.actions[*path[s + 1].action].action.kind);
        REQUIRE((behind == Stream::SendForward || behind == Stream::SendBackward));
      }
    }
  }
}

TEST_CASE("actions in one row of a stream do not overlap") {
  Dice dice(34);
  for (int i = 0; i < scaled(200); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {.slowdown = true, .deal = true});
    INFO("instance " << i << ": " << text_of(pipeline));
    const Timeline timeline = pipeline.run().timeline;
    const std::vector<std::int32_t> rows = rows_of(timeline);
    std::map<std::tuple<LaneIndex, Stream, std::int32_t>, Duration> ends;
    for (std::size_t a = 0; a < timeline.actions.size(); ++a) {
      const TimedAction& timed = timeline.actions[a];
      Duration& end = ends[{timed.lane, stream_of(timed.action.kind), rows[a]}];
      REQUIRE(end <= timed.start);
      end = timed.end;
      if (stream_of(timed.action.kind) == Stream::Compute) REQUIRE(rows[a] == 0);
    }
  }
}

}  // namespace
}  // namespace dapple
