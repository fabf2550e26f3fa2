#include <catch2/catch.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "dapple/schedule/schedule.h"
#include "sample_plans.h"

namespace dapple {
namespace {

/// `groups` devices with `chunks` stages each, stage i on device i mod groups.
Plan looped_plan(ScheduleFamily family, std::int32_t groups, std::int32_t chunks,
                 std::int64_t micro_batches) {
  Plan plan = straight_plan(
      micro_batches, std::vector<std::int64_t>(static_cast<std::size_t>(groups * chunks), 1));
  plan.family = family;
  plan.chunks_per_device = chunks;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    plan.stages[s].devices = {DeviceIndex{static_cast<std::int32_t>(s) % groups}};
  }
  if (!carries_order(family)) fill_depths(plan);
  return plan;
}

/// Two devices in a V, the order given.
Plan v_plan(std::int64_t micro_batches, const std::vector<std::string>& order) {
  Plan plan = looped_plan(ScheduleFamily::ZeroBubbleV, 2, 2, micro_batches);
  plan.stages[2].devices = {DeviceIndex{1}};
  plan.stages[3].devices = {DeviceIndex{0}};
  for (const std::string& list : order) plan.order.push_back(parse_actions(list));
  fill_depths(plan);
  return plan;
}

/// Computations only.
std::string computations_of(const Lane& lane) {
  std::vector<Action> computations;
  for (const Action& action : lane.actions) {
    if (stream_of(action.kind) == Stream::Compute) computations.push_back(action);
  }
  return to_text(computations);
}

std::vector<std::string> faults_of(const Plan& plan) {
  std::vector<std::string> texts;
  for (const Violation& fault : validate(generate(plan), plan)) {
    texts.push_back(fault.place + ": " + fault.message);
  }
  return texts;
}

using Texts = std::vector<std::string>;

TEST_CASE(
    "interleaved 1F1B takes turns over its chunks in rounds of as many as there are devices") {
  // Device 0 warms up with 2 (2 - 0 - 1) + (2 - 1) 2 = 4 forwards, device 1 with 2.
  const Plan plan = looped_plan(ScheduleFamily::Interleaved, 2, 2, 4);
  const Schedule schedule = generate(plan);
  REQUIRE(schedule.lanes.size() == 2);
  CHECK(schedule.lanes[1].stages == std::vector{StageIndex{1}, StageIndex{3}});
  CHECK(computations_of(schedule.lanes[0]) ==
        "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3 2STEP 0STEP");
  CHECK(computations_of(schedule.lanes[1]) ==
        "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3 3STEP 1STEP");
  CHECK(faults_of(plan).empty());
  // Most at once of stage 0: before 0B0 0 to 3; of stage 1: 0 and 1, and 2 before 1B0 ends it.
  CHECK(plan.warmup_depths == std::vector<std::int64_t>{4, 3, 2, 1});
}

TEST_CASE("every interleaved and every breadth-first schedule of small shapes ends") {
  for (const ScheduleFamily family : {ScheduleFamily::Interleaved, ScheduleFamily::BreadthFirst}) {
    for (std::int32_t groups = 1; groups <= 6; ++groups) {
      for (std::int32_t chunks = 2; chunks <= 4; ++chunks) {
        const std::int64_t step = family == ScheduleFamily::Interleaved ? groups : 1;
        for (std::int64_t micro_batches = step; micro_batches <= 20; micro_batches += step) {
          CAPTURE(to_string(family), groups, chunks, micro_batches);
          REQUIRE(faults_of(looped_plan(family, groups, chunks, micro_batches)) == Texts{});
        }
      }
    }
  }
}

TEST_CASE("breadth-first passes all micro-batches through a stage before the next of the device") {
  const Plan plan = looped_plan(ScheduleFamily::BreadthFirst, 2, 2, 2);
  CHECK(computations_of(generate(plan).lanes[0]) == "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1 2STEP 0STEP");
  CHECK(plan.warmup_depths == std::vector<std::int64_t>{2, 2, 2, 2});
}

TEST_CASE("a stage's gradients are reduced right behind the last of them") {
  Plan plan = looped_plan(ScheduleFamily::BreadthFirst, 1, 2, 1);
  for (StagePlan& stage : plan.stages) {
    stage.devices = {DeviceIndex{0}, DeviceIndex{1}};
    stage.gradient_buckets = {Bytes{1}};
  }
  CHECK(text_of(generate(plan).lanes[0]) ==
        "0F0 0SEND_F0 1RECV_F0 1F0 1B0 1SEND_B0 1REDUCE_GRAD0 0RECV_B0 0B0 0REDUCE_GRAD0 "
        "1STEP 0STEP");
  CHECK(faults_of(plan).empty());
}

TEST_CASE("in a V a device's two stages may run the backward in two parts") {
  const Plan plan = v_plan(1, {"0F0 3F0 3I0 3W0 0I0 0W0", "1F0 2F0 2B0 1B0"});
  const Schedule schedule = generate(plan);
  CHECK(schedule.lanes[0].stages == std::vector{StageIndex{0}, StageIndex{3}});
  CHECK(text_of(schedule.lanes[0]) ==
        "0F0 0SEND_F0 3RECV_F0 3F0 3I0 3SEND_B0 3W0 0RECV_B0 0I0 0W0 3STEP 0STEP");
  CHECK(faults_of(plan).empty());
}

TEST_CASE("faults of an order are named") {
  const auto fault = [](const std::vector<std::string>& order) {
    const Plan plan = v_plan(1, order);
    const Texts faults = faults_of(plan);
    // A backward too many or too few has its sends and reductions at fault too.
    const auto of_backward = std::find_if(faults.begin(), faults.end(), [](const auto& text) {
      return text.find("SEND_B0 stands") == std::string::npos &&
             text.find("RECV_B0 stands") == std::string::npos;
    });
    REQUIRE(of_backward != faults.end());
    return *of_backward;
  };
  const std::string rest = "1F0 2F0 2B0 1B0";
  CHECK(fault({"0F0 3F0 3I0 0B0", rest}) ==
        "stage 3: 3W0 is missing: micro-batch 0 adds nothing to the weights' gradients");
  CHECK(fault({"0F0 3F0 3W0 3I0 0B0", rest}) ==
        "stage 3: 3W0 stands before 3I0: the weights' gradient needs what the input's left");
  CHECK(fault({"0F0 3F0 3I0 3W0 3B0 0B0", rest}) ==
        "stage 3: 3B0 is listed with its own parts: a backward is run once");
  CHECK(fault({"0F0 3F0 0B0 3B0", rest}) ==
        ": deadlock: stages 0 and 3 wait at 0B0 for 1SEND_B0; stages 1 and 2 wait at 2B0 for "
        "3SEND_B0");
  const Texts elsewhere = faults_of(v_plan(1, {"0F0 3F0 3B0 0B0", "1F0 2F0 2B0 1B0 3F0"}));
  CHECK(elsewhere == Texts{"stages 1 and 2: 3RECV_F0 is of a stage that is not on these devices",
                           "stages 1 and 2: 3F0 is of a stage that is not on these devices"});
}

TEST_CASE("parts of a backward belong only to families that run it so") {
  Plan plan = straight_plan(1, {1});
  plan.family = ScheduleFamily::ListScheduled;
  plan.order = {parse_actions("0F0 0I0 0W0")};
  const Texts faults = faults_of(plan);
  REQUIRE(!faults.empty());
  CHECK(faults.front() ==
        "stage 0: 0I0 is part of a backward, which list-scheduled runs as a whole");
}

TEST_CASE("the depths of a family without a choice are those of its order") {
  Plan plan = looped_plan(ScheduleFamily::BreadthFirst, 2, 2, 2);
  plan.warmup_depths[1] = 1;
  CHECK(faults_of(plan) ==
        Texts{"stage 1: 2 micro-batches in flight at 1F1, more than the warm-up depth of 1"});
  plan.warmup_depths[1] = 2;
  plan.order = {};
  Plan deeper = looped_plan(ScheduleFamily::Interleaved, 2, 2, 4);
  deeper.warmup_depths[3] = 2;
  CHECK(faults_of(deeper) ==
        Texts{"stage 3: at most 1 micro-batches in flight, but the warm-up depth is 2"});
}

TEST_CASE("actions are read as they are written") {
  const std::string text =
      "0F0 10B12 3I4 3W4 1SEND_F0 2RECV_F0 2SEND_B0 1RECV_B0 0REDUCE_GRAD1 7STEP";
  CHECK(to_text(parse_actions(text)) == text);
  CHECK(to_text(parse_actions("\n 0F0\t0B0 ")) == "0F0 0B0");
  CHECK(parse_actions("").empty());
  for (const char* bad : {"F0", "0F", "0X0", "0F0x", "-1F0", "0F-1", "0F99999999999", "0STEPS"}) {
    CAPTURE(bad);
    CHECK_THROWS_WITH(parse_actions(std::string("0F0 ") + bad),
                      std::string("expected an action such as 2F0, got \"") + bad + "\"");
  }
}

}  // namespace
}  // namespace dapple
