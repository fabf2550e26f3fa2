#include <catch2/catch.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "dapple/schedule/schedule.h"
#include "sample_plans.h"

namespace dapple {
namespace {

TEST_CASE("one stage passes its micro-batches without communication") {
  const Schedule schedule = generate(straight_plan(3, {1}));
  REQUIRE(schedule.lanes.size() == 1);
  CHECK(schedule.num_micro_batches == 3);
  CHECK(text_of(schedule.lanes[0]) == "0F0 0B0 0F1 0B1 0F2 0B2 0STEP");
}

TEST_CASE("1F1B runs its depth of forwards, then takes turns, then drains") {
  CHECK(text_of(generate(straight_plan(4, {2})).lanes[0]) ==
        "0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3 0STEP");
  CHECK(text_of(generate(straight_plan(3, {3})).lanes[0]) == "0F0 0F1 0F2 0B0 0B1 0B2 0STEP");
}

TEST_CASE("two stages of a plan exchange activations and gradients") {
  const Schedule schedule = generate(straight_plan(2, {2, 1}));
  REQUIRE(schedule.lanes.size() == 2);
  CHECK(text_of(schedule.lanes[0]) == "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0STEP");
  CHECK(text_of(schedule.lanes[1]) == "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1STEP");
}

TEST_CASE("a stage in the middle talks to both neighbours") {
  const Schedule schedule = generate(straight_plan(3, {3, 2, 1}));
  REQUIRE(schedule.lanes.size() == 3);
  CHECK(text_of(schedule.lanes[1]) ==
        "1RECV_F0 1F0 1SEND_F0 1RECV_F1 1F1 1SEND_F1 1RECV_B0 1B0 1SEND_B0 "
        "1RECV_F2 1F2 1SEND_F2 1RECV_B1 1B1 1SEND_B1 1RECV_B2 1B2 1SEND_B2 1STEP");
}

TEST_CASE("GPipe runs all forwards, then all backwards in the same order") {
  Plan plan = straight_plan(3, {3, 3});
  plan.family = ScheduleFamily::GPipe;
  const Schedule schedule = generate(plan);
  CHECK(text_of(schedule.lanes[0]) ==
        "0F0 0SEND_F0 0F1 0SEND_F1 0F2 0SEND_F2 0RECV_B0 0B0 0RECV_B1 0B1 0RECV_B2 0B2 0STEP");
  CHECK(text_of(schedule.lanes[1]) ==
        "1RECV_F0 1F0 1RECV_F1 1F1 1RECV_F2 1F2 1B0 1SEND_B0 1B1 1SEND_B1 1B2 1SEND_B2 1STEP");
}

TEST_CASE("replicas of a split stage share one lane and reduce every bucket before the step") {
  Plan plan = straight_plan(2, {1});
  replicate(plan, {2}, false, 3);
  const Schedule schedule = generate(plan);
  REQUIRE(schedule.lanes.size() == 1);
  CHECK(schedule.lanes[0].devices == std::vector<DeviceIndex>{DeviceIndex{0}, DeviceIndex{1}});
  CHECK(text_of(schedule.lanes[0]) ==
        "0F0 0B0 0F1 0B1 0REDUCE_GRAD0 0REDUCE_GRAD1 0REDUCE_GRAD2 0STEP");
}

TEST_CASE("replicas of a dealt stage have lanes of their own, each with every r-th micro-batch") {
  Plan plan = straight_plan(5, {2, 1});
  replicate(plan, {2, 1}, true, 1);
  const Schedule schedule = generate(plan);
  REQUIRE(schedule.lanes.size() == 3);
  CHECK(schedule.lanes[1].stages == std::vector{StageIndex{0}});
  CHECK(schedule.lanes[1].replica == 1);
  CHECK(schedule.lanes[1].devices == std::vector<DeviceIndex>{DeviceIndex{1}});
  // Replica 0 has 0, 2, 4 at depth 2; replica 1 has 1, 3, which a depth of 2 takes in at once.
  CHECK(text_of(schedule.lanes[0]) ==
        "0F0 0SEND_F0 0F2 0SEND_F2 0RECV_B0 0B0 0F4 0SEND_F4 0RECV_B2 0B2 0RECV_B4 0B4 "
        "0REDUCE_GRAD0 0STEP");
  CHECK(text_of(schedule.lanes[1]) ==
        "0F1 0SEND_F1 0F3 0SEND_F3 0RECV_B1 0B1 0RECV_B3 0B3 0REDUCE_GRAD0 0STEP");
  CHECK(text_of(schedule.lanes[2]).find("1RECV_F3 1F3 1B3 1SEND_B3") != std::string::npos);
}

TEST_CASE("an optimizer that steps by bucket has a step for each, the first without a number") {
  Plan plan = straight_plan(1, {1, 1});
  replicate(plan, {2, 1}, false, 3);
  plan.gradients.optimizer = OptimizerTiming::PerBucket;
  const Schedule schedule = generate(plan);
  CHECK(text_of(schedule.lanes[0]) ==
        "0F0 0SEND_F0 0RECV_B0 0B0 0REDUCE_GRAD0 0REDUCE_GRAD1 0REDUCE_GRAD2 0STEP 0STEP1 0STEP2");
  CHECK(text_of(schedule.lanes[1]) == "1RECV_F0 1F0 1B0 1SEND_B0 1STEP");
  CHECK(optimizer_steps(plan, StageIndex{0}) == 3);
  CHECK(optimizer_steps(plan, StageIndex{1}) == 1);
  CHECK(validate(schedule, plan).empty());
}

TEST_CASE("a stage keeps exactly its warm-up depth of micro-batches in flight") {
  for (std::int64_t micro_batches = 1; micro_batches <= 6; ++micro_batches) {
    for (std::int64_t depth = 1; depth <= micro_batches; ++depth) {
      const Lane lane = generate(straight_plan(micro_batches, {depth})).lanes[0];
      std::int64_t in_flight = 0;
      std::int64_t most = 0;
      for (const Action& action : lane.actions) {
        if (action.kind == ActionKind::Forward) most = std::max(most, ++in_flight);
        if (action.kind == ActionKind::Backward) --in_flight;
      }
      CHECK(most == depth);
      CHECK(in_flight == 0);
    }
  }
}

TEST_CASE("every action runs on its stream, and a receive on none") {
  CHECK(stream_of(ActionKind::Forward) == Stream::Compute);
  CHECK(stream_of(ActionKind::Backward) == Stream::Compute);
  CHECK(stream_of(ActionKind::OptimizerStep) == Stream::Compute);
  CHECK(stream_of(ActionKind::SendActivation) == Stream::SendForward);
  CHECK(stream_of(ActionKind::SendGradient) == Stream::SendBackward);
  CHECK(stream_of(ActionKind::AllReduce) == Stream::Collective);
  CHECK(stream_of(ActionKind::ReceiveActivation) == Stream::None);
  CHECK(stream_of(ActionKind::ReceiveGradient) == Stream::None);
  CHECK(to_string(Stream::SendForward) == "send_forward");
}

TEST_CASE("independent replicas have a lane each: the list of all, their own device and share") {
  Plan plan = straight_plan(2, {2, 1});
  plan.global_batch_size = 10;
  plan.micro_batch_size = 5;
  replicate(plan, {2, 1}, false, 1);
  const Schedule together = generate(plan);
  const Schedule apart = generate(plan, Replicas::Independent);
  REQUIRE(together.lanes.size() == 2);
  REQUIRE(apart.lanes.size() == 3);
  for (const std::int32_t replica : {0, 1}) {
    const Lane& lane = apart.lanes[static_cast<std::size_t>(replica)];
    CHECK(text_of(lane) == text_of(together.lanes[0]));
    CHECK(lane.replica == replica);
    CHECK(lane.devices == std::vector<DeviceIndex>{DeviceIndex{replica}});
    CHECK(lane.dealt_to == 1);
    // Five samples: three and two.
    CHECK(lane.samples.begin == 3 * replica);
    CHECK(lane.samples.end == (replica == 0 ? 3 : 5));
  }
  CHECK(apart.lanes[2].samples.size() == 5);
}

TEST_CASE("replicas that are dealt micro-batches are independent anyway") {
  Plan plan = straight_plan(3, {2, 1});
  replicate(plan, {2, 1}, true, 1);
  const Schedule together = generate(plan);
  const Schedule apart = generate(plan, Replicas::Independent);
  REQUIRE(apart.lanes.size() == 3);
  for (std::size_t lane = 0; lane < 3; ++lane) {
    CHECK(text_of(apart.lanes[lane]) == text_of(together.lanes[lane]));
    CHECK(apart.lanes[lane].replica == together.lanes[lane].replica);
    CHECK(apart.lanes[lane].dealt_to == (lane < 2 ? 2 : 1));
  }
}

TEST_CASE("lanes generated one at a time, in the same memory, are those of the schedule") {
  const Plan plan = straight_plan(60'000, {2, 1});  // long enough for generate() to use threads
  const Schedule whole = generate(plan);
  Schedule one_at_a_time = outline(plan);
  REQUIRE(one_at_a_time.lanes.size() == whole.lanes.size());
  std::vector<Action> memory;
  std::string text;
  for (std::size_t i = 0; i < whole.lanes.size(); ++i) {
    Lane& lane = one_at_a_time.lanes[i];
    CHECK(lane.actions.empty());
    lane.actions.swap(memory);
    generate_actions(plan, i, lane);
    CHECK(lane.actions == whole.lanes[i].actions);
    CHECK(lane.devices == whole.lanes[i].devices);
    write_text(lane.actions, text);
    CHECK(text == " " + to_text(whole.lanes[i].actions));
    lane.actions.swap(memory);
  }
}

TEST_CASE("the text of a schedule has one line for each device, in the order of the lanes") {
  ServerGroup group;
  group.name = "box";
  group.device = "gpu";
  group.devices = 3;
  group.links.port = {.bandwidth = {1'000'000}, .latency = {0}};
  DeviceKind kind;
  kind.name = "gpu";
  kind.memory = {1'000'000};
  TopologyDescription description;
  description.name = "box";
  description.devices = {kind};
  description.servers = {group};
  const Topology topology(description);

  Plan plan = straight_plan(1, {1, 1});
  replicate(plan, {2, 1}, false, 1);
  plan.stages[0].devices = {DeviceIndex{2}, DeviceIndex{0}};
  plan.stages[1].devices = {DeviceIndex{1}};
  CHECK(to_text(generate(plan), topology) ==
        "box0:2: 0F0 0SEND_F0 0RECV_B0 0B0 0REDUCE_GRAD0 0STEP\n"
        "box0:0: 0F0 0SEND_F0 0RECV_B0 0B0 0REDUCE_GRAD0 0STEP\n"
        "box0:1: 1RECV_F0 1F0 1B0 1SEND_B0 1STEP\n");
}

}  // namespace
}  // namespace dapple
