// Lanes driven by hand: the test says when inputs arrive and when computations start, and works out
// each forecast.

#include <catch2/catch.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dapple/simulate/lane_scheduler.h"
#include "lane.h"

namespace dapple::simulate {
namespace {

constexpr LaneIndex kFirstLane{0};
constexpr LaneIndex kSecondLane{1};

/// A forward of 10 ns, and a backward of 20, whose input gradient takes 12 and whose weight
/// gradient the other 8. Its buckets are ready after these times.
StageCost stage_cost(std::vector<Duration> in_backward = {},
                     std::vector<Duration> in_weights = {}) {
  StageCost cost;
  cost.replicas.resize(1);
  cost.forward = {10};
  cost.backward = {20};
  cost.input_gradient = {12};
  cost.weight_gradient = {8};
  cost.buckets.resize(in_backward.size());
  cost.bucket_ready = std::move(in_backward);
  cost.bucket_ready_in_weights = std::move(in_weights);
  cost.optimizer_step = {5};
  return cost;
}

/// The scheduler of one stage on one lane, with what it refers to.
struct OneStage {
  Schedule schedule;
  PlanCost costs;
  LaneScheduler lanes;

  OneStage(const std::string& actions, std::int64_t micro_batches, StageCost cost,
           Factor slowdown = kOne)
      : schedule{micro_batches, {lane({{0}}, actions)}},
        costs{{std::move(cost)}, {}, {}, slowdown},
        lanes(schedule, costs) {}
  OneStage(const OneStage&) = delete;
  OneStage& operator=(const OneStage&) = delete;
};

std::string next_of(const LaneScheduler& lanes, LaneIndex lane) {
  return to_text(lanes.computation(lane));
}

/// Runs the next computation of a lane, which has no milestones, and returns when it ends.
Duration run_next(LaneScheduler& lanes, LaneIndex lane, Duration start) {
  const LaneScheduler::Forecast end = lanes.start(lane, start);
  REQUIRE_FALSE(lanes.has_milestone(lane));
  lanes.finish(lane);
  return end.time;
}

TEST_CASE("a computation starts when its input has arrived, on a lane that computes nothing else") {
  const Schedule schedule{1,
                          {lane({{0}}, "0F0 0SEND_F0 0RECV_B0 0B0 0STEP"),
                           lane({{1}}, "1RECV_F0 1F0 1B0 1SEND_B0 1STEP")}};
  const PlanCost costs{.stages = {stage_cost(), stage_cost()}, .boundaries = {}, .ties = {}};
  LaneScheduler lanes(schedule, costs);

  // The first stage needs no activation.
  REQUIRE(lanes.is_waiting(kFirstLane));
  CHECK(next_of(lanes, kFirstLane) == "0F0");
  CHECK(lanes.input_time(kFirstLane) == Duration{0});
  CHECK(lanes.start(kFirstLane, {3}).time == Duration{3 + 10});
  CHECK_FALSE(lanes.is_waiting(kFirstLane));
  CHECK_FALSE(lanes.finish(kFirstLane).made_all_gradients);
  REQUIRE(lanes.is_waiting(kFirstLane));
  CHECK(next_of(lanes, kFirstLane) == "0B0");
  CHECK(lanes.input_time(kFirstLane).is_infinite());

  // The second needs it; the gradient that its backward starts from is its own.
  CHECK(lanes.input_time(kSecondLane).is_infinite());
  lanes.expect(kSecondLane, {.stage = {1}, .micro_batch = 0}, {17});
  CHECK(lanes.input_time(kSecondLane) == Duration{17});
  CHECK(run_next(lanes, kSecondLane, {17}) == Duration{17 + 10});
  CHECK(lanes.input_time(kSecondLane) == Duration{0});
  CHECK(run_next(lanes, kSecondLane, {27}) == Duration{27 + 20});

  lanes.expect(kFirstLane, {.stage = {0}, .micro_batch = 0, .is_gradient = true}, {50});
  CHECK(lanes.input_time(kFirstLane) == Duration{50});
  CHECK(lanes.start(kFirstLane, {50}).time == Duration{50 + 20});
  const LaneScheduler::Finished backward = lanes.finish(kFirstLane);
  CHECK(to_text(backward.computation) == "0B0");
  CHECK(backward.made_all_gradients);
  CHECK(next_of(lanes, kFirstLane) == "0STEP");
  CHECK(run_next(lanes, kFirstLane, {70}) == Duration{70 + 5});
  CHECK(lanes.is_done(kFirstLane));
  CHECK_FALSE(lanes.is_done(kSecondLane));
}

TEST_CASE("inputs are those of one stage of a lane and of one micro-batch") {
  // The lane has stages 0 and 2, another one has stage 1.
  const Schedule schedule{2,
                          {lane({{0}, {2}}, "0F0 2F0 0F1 2F1 2B0 2B1 0B0 0B1 0STEP 2STEP"),
                           lane({{1}}, "1F0 1F1 1B0 1B1 1STEP")}};
  PlanCost costs{
      .stages = {stage_cost(), stage_cost(), stage_cost()}, .boundaries = {}, .ties = {}};
  costs.stages[2].forward = {4};
  LaneScheduler lanes(schedule, costs);
  CHECK(run_next(lanes, kFirstLane, {0}) == Duration{10});
  lanes.expect(kFirstLane, {.stage = {2}, .micro_batch = 1}, {40});
  CHECK(lanes.input_time(kFirstLane).is_infinite());
  lanes.expect(kFirstLane, {.stage = {2}, .micro_batch = 0}, {30});
  CHECK(lanes.input_time(kFirstLane) == Duration{30});
  CHECK(run_next(lanes, kFirstLane, {30}) == Duration{34});
  CHECK(lanes.input_time(kFirstLane) == Duration{0});
  CHECK(run_next(lanes, kFirstLane, {34}) == Duration{44});
  CHECK(next_of(lanes, kFirstLane) == "2F1");
  CHECK(lanes.input_time(kFirstLane) == Duration{40});
}

TEST_CASE("an optimizer that steps by bucket takes the time of each part") {
  StageCost cost = stage_cost();
  cost.bucket_steps = {{1}, {4}};
  OneStage driven("0F0 0B0 0STEP 0STEP1", 1, std::move(cost));
  run_next(driven.lanes, kFirstLane, {0});
  run_next(driven.lanes, kFirstLane, {10});
  CHECK(run_next(driven.lanes, kFirstLane, {30}) == Duration{31});
  CHECK(run_next(driven.lanes, kFirstLane, {40}) == Duration{44});
  CHECK(driven.lanes.is_done(kFirstLane));
}

TEST_CASE("the last backward has a milestone at each bucket") {
  OneStage driven("0F0 0B0 0F1 0B1 0STEP", 2, stage_cost({{6}, {13}}));
  LaneScheduler& lanes = driven.lanes;
  run_next(lanes, kFirstLane, {0});
  // Gradients are added up until the last backward.
  CHECK(run_next(lanes, kFirstLane, {10}) == Duration{30});
  CHECK(run_next(lanes, kFirstLane, {30}) == Duration{40});

  const LaneScheduler::Forecast first = lanes.start(kFirstLane, {40});
  CHECK(first.time == Duration{40 + 6});
  CHECK(lanes.is_current(kFirstLane, first.version));
  REQUIRE(lanes.has_milestone(kFirstLane));
  const LaneScheduler::Milestone second = lanes.pass_milestone(kFirstLane, {46});
  CHECK(second.bucket == 0);
  CHECK(second.next.time == Duration{40 + 13});
  CHECK_FALSE(lanes.is_current(kFirstLane, first.version));
  REQUIRE(lanes.has_milestone(kFirstLane));
  const LaneScheduler::Milestone end = lanes.pass_milestone(kFirstLane, {53});
  CHECK(end.bucket == 1);
  CHECK(end.next.time == Duration{40 + 20});
  CHECK_FALSE(lanes.has_milestone(kFirstLane));
  CHECK(lanes.finish(kFirstLane).made_all_gradients);
}

TEST_CASE("in a split backward the last weight gradient has the milestones") {
  OneStage driven("0F0 0F1 0I0 0I1 0W0 0W1 0STEP", 2, stage_cost({{6}}, {{3}}));
  LaneScheduler& lanes = driven.lanes;
  run_next(lanes, kFirstLane, {0});
  run_next(lanes, kFirstLane, {10});
  CHECK(run_next(lanes, kFirstLane, {20}) == Duration{20 + 12});
  CHECK(run_next(lanes, kFirstLane, {32}) == Duration{32 + 12});
  CHECK(lanes.input_time(kFirstLane) == Duration{0});
  CHECK(run_next(lanes, kFirstLane, {44}) == Duration{44 + 8});
  CHECK(lanes.start(kFirstLane, {52}).time == Duration{52 + 3});
  REQUIRE(lanes.has_milestone(kFirstLane));
  CHECK(lanes.pass_milestone(kFirstLane, {55}).next.time == Duration{52 + 8});
  CHECK(lanes.finish(kFirstLane).made_all_gradients);
}

TEST_CASE("only a computation of a known length starts ahead of its input") {
  OneStage steady("0F0 0B0 0F1 0B1 0STEP", 2, stage_cost({{6}}));
  for (const char* computation : {"0F0", "0B0", "0F1"}) {
    CHECK(next_of(steady.lanes, kFirstLane) == computation);
    CHECK(steady.lanes.may_start_ahead(kFirstLane));
    run_next(steady.lanes, kFirstLane, {0});
  }
  CHECK(next_of(steady.lanes, kFirstLane) == "0B1");
  CHECK_FALSE(steady.lanes.may_start_ahead(kFirstLane));
  const OneStage slowed("0F0 0B0 0STEP", 1, stage_cost(), Factor{1'100'000'000});
  CHECK_FALSE(slowed.lanes.may_start_ahead(kFirstLane));
}

TEST_CASE("a reduction slows a computation down until it is over, rounded up at the end") {
  OneStage driven("0F0 0B0 0STEP", 1, stage_cost(), Factor{1'500'000'000});
  LaneScheduler& lanes = driven.lanes;
  const LaneScheduler::Forecast alone = lanes.start(kFirstLane, {0});
  CHECK(alone.time == Duration{10});
  // 4 of 10 ns are done, the other 6 take 6 * 1.5 = 9.
  const auto slowed = lanes.set_reducing(kFirstLane, true, {4});
  REQUIRE(slowed);
  CHECK(slowed->time == Duration{4 + 9});
  CHECK_FALSE(lanes.is_current(kFirstLane, alone.version));
  CHECK(lanes.is_current(kFirstLane, slowed->version));
  CHECK_FALSE(lanes.set_reducing(kFirstLane, true, {5}));
  // In 5 ns 5 / 1.5 = 3.33 are done: 2.67 of the 6 are left, and end at 11.67.
  const auto resumed = lanes.set_reducing(kFirstLane, false, {9});
  REQUIRE(resumed);
  CHECK(resumed->time == Duration{12});
  lanes.finish(kFirstLane);

  // A lane that waits is told, and its next computation is slow from the start: 20 * 1.5 = 30.
  CHECK_FALSE(lanes.set_reducing(kFirstLane, true, {12}));
  CHECK(run_next(lanes, kFirstLane, {20}) == Duration{50});
}

TEST_CASE("a milestone is as far off as the work in front of it") {
  // The first bucket has 6 ns of work, the second 7 more, and 7 are left behind it. Doubled from 2
  // on: 2 + 2 * 4 = 10, then 10 + 14 = 24. From 16 on at full speed: 3 of the 7 are done, so 16 + 4
  // = 20, and 20 + 7 = 27.
  OneStage driven("0F0 0B0 0STEP", 1, stage_cost({{6}, {13}}), Factor{2'000'000'000});
  LaneScheduler& lanes = driven.lanes;
  run_next(lanes, kFirstLane, {0});
  CHECK(lanes.start(kFirstLane, {0}).time == Duration{6});
  CHECK(lanes.set_reducing(kFirstLane, true, {2})->time == Duration{10});
  CHECK(lanes.pass_milestone(kFirstLane, {10}).next.time == Duration{24});
  CHECK(lanes.set_reducing(kFirstLane, false, {16})->time == Duration{20});
  CHECK(lanes.pass_milestone(kFirstLane, {20}).next.time == Duration{27});
}

TEST_CASE("without a slowdown reductions change no forecast") {
  OneStage driven("0F0 0B0 0STEP", 1, stage_cost({{6}}));
  run_next(driven.lanes, kFirstLane, {0});
  const LaneScheduler::Forecast milestone = driven.lanes.start(kFirstLane, {10});
  CHECK_FALSE(driven.lanes.set_reducing(kFirstLane, true, {12}));
  CHECK(driven.lanes.is_current(kFirstLane, milestone.version));
}

/// A stage of two replicas of which the second, with backwards of 15, is the faster one.
StageCost uneven_replicas() {
  StageCost cost = stage_cost({{6}, {18}}, {{2}, {7}});
  cost.replicas.resize(2);
  cost.replicas[0].forward = {10};
  cost.replicas[0].backward = {20};
  cost.replicas[1].forward = {8};
  cost.replicas[1].backward = {15};
  cost.replicas[1].input_gradient = {9};
  cost.replicas[1].moments = 1;
  cost.moments = {{cost.bucket_ready, cost.bucket_ready_in_weights}, {{{4}, {11}}, {{1}, {5}}}};
  return cost;
}

TEST_CASE("a dealt replica counts its own micro-batches, at its own speed") {
  Lane first = lane({{0}}, "0F0 0B0 0F2 0B2 0STEP");
  Lane second = lane({{0}}, "0F1 0B1 0STEP");
  first.dealt_to = second.dealt_to = 2;
  second.replica = 1;
  const Schedule schedule{3, {first, second, lane({{1}}, "1F0 1B0 1F1 1B1 1F2 1B2 1STEP")}};
  const PlanCost costs{.stages = {uneven_replicas(), stage_cost()}, .boundaries = {}, .ties = {}};
  LaneScheduler lanes(schedule, costs);

  CHECK(run_next(lanes, kFirstLane, {0}) == Duration{10});
  lanes.expect(kFirstLane, {.stage = {0}, .micro_batch = 2, .is_gradient = true}, {90});
  CHECK(lanes.input_time(kFirstLane).is_infinite());
  lanes.expect(kFirstLane, {.stage = {0}, .micro_batch = 0, .is_gradient = true}, {30});
  CHECK(run_next(lanes, kFirstLane, {30}) == Duration{50});
  CHECK(run_next(lanes, kFirstLane, {50}) == Duration{60});
  CHECK(lanes.input_time(kFirstLane) == Duration{90});
  // Micro-batch 2 is the last of replica 0.
  CHECK(lanes.start(kFirstLane, {90}).time == Duration{90 + 6});

  // Micro-batch 1 is the only one of replica 1. The moments are those of the slowest replica, but
  // the second bucket, ready after 18 there, is ready at the end of the 15 here.
  CHECK(run_next(lanes, kSecondLane, {0}) == Duration{8});
  CHECK(lanes.start(kSecondLane, {50}).time == Duration{50 + 6});
  CHECK(lanes.pass_milestone(kSecondLane, {56}).next.time == Duration{50 + 15});
  CHECK(lanes.pass_milestone(kSecondLane, {65}).next.time == Duration{50 + 15});
  CHECK(lanes.finish(kSecondLane).made_all_gradients);
}

TEST_CASE("an independent replica has its own times and its own moments") {
  Lane first = lane({{0}}, "0F0 0B0 0STEP");
  Lane second = lane({{0}}, "0F0 0I0 0W0 0STEP");
  second.replica = 1;
  const Schedule schedule{1, {first, second}};
  const PlanCost costs{.stages = {uneven_replicas()}, .boundaries = {}, .ties = {}};
  LaneScheduler lanes(schedule, costs);
  CHECK(run_next(lanes, kFirstLane, {0}) == Duration{10});
  CHECK(lanes.start(kFirstLane, {10}).time == Duration{10 + 6});
  // The weight gradient is what the input gradient leaves of the backward: 15 - 9 = 6.
  CHECK(run_next(lanes, kSecondLane, {0}) == Duration{8});
  CHECK(run_next(lanes, kSecondLane, {8}) == Duration{8 + 9});
  CHECK(lanes.start(kSecondLane, {17}).time == Duration{17 + 1});
  CHECK(lanes.pass_milestone(kSecondLane, {18}).next.time == Duration{17 + 5});
  CHECK(lanes.pass_milestone(kSecondLane, {22}).next.time == Duration{17 + 6});
}

}  // namespace
}  // namespace dapple::simulate
