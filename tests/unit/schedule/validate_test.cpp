#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "dapple/core/random.h"
#include "dapple/schedule/schedule.h"
#include "sample_plans.h"

namespace dapple {
namespace {

using K = ActionKind;

/// Actions in these tests are of the lane's first stage.
std::size_t position_of(const Lane& lane, Action action) {
  action.stage = lane.stages.front();
  const auto found = std::find(lane.actions.begin(), lane.actions.end(), action);
  REQUIRE(found != lane.actions.end());
  return static_cast<std::size_t>(found - lane.actions.begin());
}

void drop(Lane& lane, Action action) {
  lane.actions.erase(lane.actions.begin() + static_cast<std::ptrdiff_t>(position_of(lane, action)));
}

void swap_actions(Lane& lane, Action a, Action b) {
  std::swap(lane.actions[position_of(lane, a)], lane.actions[position_of(lane, b)]);
}

void check_only_fault(const Schedule& schedule, const Plan& plan, const std::string& place,
                      const std::string& message) {
  const std::vector<Violation> faults = validate(schedule, plan);
  REQUIRE(faults.size() == 1);
  CHECK(faults[0].place == place);
  CHECK(faults[0].message == message);
}

/// Calls `visit` with every vector of `size` depths in 1 ... most.
template <class Visit>
void for_each_depths(std::size_t size, std::int64_t most, Visit visit) {
  std::vector<std::int64_t> depths(size, 1);
  while (true) {
    visit(depths);
    std::size_t digit = 0;
    while (digit < size && depths[digit] == most) depths[digit++] = 1;
    if (digit == size) return;
    ++depths[digit];
  }
}

TEST_CASE("a generated schedule ends exactly where no depth rises, over all small depth vectors") {
  int legal = 0;
  int deadlocked = 0;
  for (std::size_t stages = 1; stages <= 5; ++stages) {
    for (std::int64_t micro_batches = 1; micro_batches <= 6; ++micro_batches) {
      for_each_depths(stages, micro_batches, [&](const std::vector<std::int64_t>& depths) {
        const Plan plan = straight_plan(micro_batches, depths);
        const std::vector<Violation> faults = validate(generate(plan), plan);
        const bool never_rises = std::is_sorted(depths.rbegin(), depths.rend());
        if (faults.empty() != never_rises) {
          CAPTURE(depths, micro_batches);
          FAIL("the dry run and the rule disagree");
        }
        if (never_rises) {
          ++legal;
        } else {
          ++deadlocked;
          REQUIRE(faults.size() == 1);
          REQUIRE(faults[0].message.rfind("deadlock: ", 0) == 0);
        }
      });
    }
  }
  // Nonincreasing vectors of S depths in 1 ... M number C(M + S - 1, S); of all M^S:
  // S=1: 21 of 21, S=2: 56 of 91, S=3: 126 of 441, S=4: 252 of 2275, S=5: 462 of 12201.
  CHECK(legal == 21 + 56 + 126 + 252 + 462);
  CHECK(legal + deadlocked == 21 + 91 + 441 + 2275 + 12201);
}

TEST_CASE("a deadlock names for every stuck lane where it waits and for what") {
  const Plan plan = straight_plan(2, {1, 2});
  check_only_fault(
      generate(plan), plan, "",
      "deadlock: stage 0 waits at 0B0 for 1SEND_B0; stage 1 waits at 1F1 for 0SEND_F1");
}

TEST_CASE("a deadlock further on names the lanes that wait for it") {
  const Plan plan = straight_plan(2, {2, 1, 2});
  // Stage 1 waits for the gradient of 0 with 1 in hand; stage 2 wants 1 before it turns round.
  check_only_fault(generate(plan), plan, "",
                   "deadlock: stage 0 waits at 0B0 for 1SEND_B0; stage 1 waits at 1B0 for "
                   "2SEND_B0; stage 2 waits at 2F1 for 1SEND_F1");
}

TEST_CASE("a dealt stage that waits for a stuck replica's gradients is part of the deadlock") {
  Plan plan = straight_plan(3, {1, 1});
  replicate(plan, {1, 2}, true, 1);
  Schedule schedule = generate(plan);
  REQUIRE(validate(schedule, plan).empty());
  // Replica 0 of stage 1 has micro-batches 0 and 2. With a depth of 2 it wants 2 before it gives
  // back the gradient of 0, on which stage 0 waits before it makes 1.
  plan.warmup_depths = {1, 2};
  check_only_fault(generate(plan), plan, "",
                   "deadlock: stage 0 waits at 0B0 for 1SEND_B0; stage 1 replica 0 waits at 1F2 "
                   "for 0SEND_F2; stage 1 replica 1 waits at 1F1 for 0SEND_F1");
  // With a depth of 2 at stage 0, replica 1 gets through and stands before the reduction.
  plan.warmup_depths = {2, 2};
  check_only_fault(generate(plan), plan, "",
                   "deadlock: stage 0 waits at 0B0 for 1SEND_B0; stage 1 replica 0 waits at 1F2 "
                   "for 0SEND_F2; stage 1 replica 1 waits at 1REDUCE_GRAD0 for 1B2");
  plan.warmup_depths = {3, 2};
  CHECK(validate(generate(plan), plan).empty());
}

TEST_CASE("depths may rise into a dealt stage as long as each replica gets its share") {
  // Two replicas take 0, 2 and 1, 3: with two in flight in front, one each is enough.
  Plan plan = straight_plan(4, {2, 1, 2});
  replicate(plan, {1, 2, 1}, true, 0);
  CHECK(validate(generate(plan), plan).empty());
}

TEST_CASE("generated schedules of dealt and split stages are sound") {
  RandomSequence random(20260101);
  const auto draw = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  for (int round = 0; round < 300; ++round) {
    const int stages = draw(1, 4);
    const std::int64_t micro_batches = draw(3, 9);
    // GPipe never deadlocks, whatever is dealt.
    Plan plan = straight_plan(
        micro_batches, std::vector<std::int64_t>(static_cast<std::size_t>(stages), micro_batches));
    plan.family = ScheduleFamily::GPipe;
    std::vector<std::int32_t> replicas;
    for (int s = 0; s < stages; ++s) replicas.push_back(draw(1, 3));
    replicate(plan, replicas, true, 2);
    for (StagePlan& stage : plan.stages) {
      if (draw(0, 1) == 0) stage.replication = Replication::Split;
    }
    const std::vector<Violation> faults = validate(generate(plan), plan);
    if (!faults.empty()) FAIL(faults[0].message);
  }
}

TEST_CASE("a schedule that lacks an action is refused by the action's name") {
  Plan plan = straight_plan(3, {3, 2, 1});
  replicate(plan, {2, 2, 2}, false, 2);
  Schedule schedule = generate(plan);
  Lane& middle = schedule.lanes[1];
  SECTION("forward") {
    drop(middle, {K::Forward, 1});
    check_only_fault(schedule, plan, "stage 1",
                     "1F1 is missing: micro-batch 1 never passes forward");
  }
  SECTION("backward") {
    drop(middle, {K::Backward, 2});
    check_only_fault(schedule, plan, "stage 1",
                     "1B2 is missing: micro-batch 2 never passes backward");
  }
  SECTION("sends") {
    drop(middle, {K::SendActivation, 0});
    check_only_fault(schedule, plan, "stage 1", "1SEND_F0 is missing: 2RECV_F0 waits for it");
  }
  SECTION("gradient sends") {
    drop(middle, {K::SendGradient, 0});
    check_only_fault(schedule, plan, "stage 1", "1SEND_B0 is missing: 0RECV_B0 waits for it");
  }
  SECTION("receives") {
    drop(middle, {K::ReceiveActivation, 0});
    check_only_fault(schedule, plan, "stage 1", "1RECV_F0 is missing: nobody takes in 0SEND_F0");
  }
  SECTION("gradient receives") {
    drop(middle, {K::ReceiveGradient, 0});
    check_only_fault(schedule, plan, "stage 1", "1RECV_B0 is missing: nobody takes in 2SEND_B0");
  }
  SECTION("reductions") {
    drop(middle, {K::AllReduce, 1});
    check_only_fault(schedule, plan, "stage 1",
                     "1REDUCE_GRAD1 is missing: the gradients of bucket 1 are never reduced");
  }
  SECTION("step") {
    drop(middle, {K::OptimizerStep, 0});
    check_only_fault(schedule, plan, "stage 1",
                     "1STEP is missing: the parameters are never updated");
  }
}

TEST_CASE("a schedule in an order that cannot be run is refused by the two actions") {
  Plan plan = straight_plan(3, {3, 2, 1});
  replicate(plan, {2, 2, 2}, false, 2);
  Schedule schedule = generate(plan);
  Lane& middle = schedule.lanes[1];
  SECTION("receive after the forward") {
    swap_actions(middle, {K::ReceiveActivation, 2}, {K::Forward, 2});
    check_only_fault(schedule, plan, "stage 1",
                     "1F2 stands before 1RECV_F2: a forward needs its input");
  }
  SECTION("send before the forward") {
    swap_actions(middle, {K::SendActivation, 2}, {K::Forward, 2});
    check_only_fault(schedule, plan, "stage 1",
                     "1SEND_F2 stands before 1F2: there is nothing to send yet");
  }
  SECTION("receive after the backward") {
    swap_actions(middle, {K::ReceiveGradient, 1}, {K::Backward, 1});
    check_only_fault(schedule, plan, "stage 1",
                     "1B1 stands before 1RECV_B1: a backward needs its gradient");
  }
  SECTION("send before the backward") {
    swap_actions(middle, {K::SendGradient, 1}, {K::Backward, 1});
    check_only_fault(schedule, plan, "stage 1",
                     "1SEND_B1 stands before 1B1: there is nothing to send yet");
  }
  SECTION("buckets") {
    swap_actions(middle, {K::AllReduce, 0}, {K::AllReduce, 1});
    check_only_fault(schedule, plan, "stage 1",
                     "1REDUCE_GRAD1 stands before 1REDUCE_GRAD0: buckets are reduced in their "
                     "order");
  }
  SECTION("reduction before the last backward") {
    drop(middle, {K::AllReduce, 0});
    middle.actions.insert(middle.actions.begin(), Action{K::AllReduce, 0, StageIndex{1}});
    check_only_fault(schedule, plan, "stage 1",
                     "1REDUCE_GRAD0 stands before 1B2: the last backward adds to all gradients");
  }
  SECTION("step before a reduction") {
    swap_actions(middle, {K::OptimizerStep, 0}, {K::AllReduce, 1});
    check_only_fault(schedule, plan, "stage 1",
                     "1STEP stands before 1REDUCE_GRAD1: the step is the stage's last action");
  }
  SECTION("a backward before its forward") {
    Plan alone = straight_plan(2, {2});
    Schedule single = generate(alone);
    swap_actions(single.lanes[0], {K::Forward, 1}, {K::Backward, 1});
    check_only_fault(single, alone, "stage 0",
                     "0B1 stands before 0F1: a backward needs what its forward kept");
  }
}

TEST_CASE("an optimizer that steps by bucket steps last, in the order of the buckets") {
  Plan plan = straight_plan(3, {3, 2, 1});
  replicate(plan, {2, 2, 2}, false, 2);
  plan.gradients.optimizer = OptimizerTiming::PerBucket;
  Schedule schedule = generate(plan);
  Lane& middle = schedule.lanes[1];
  SECTION("swapped") {
    swap_actions(middle, {K::OptimizerStep, 0}, {K::OptimizerStep, 1});
    check_only_fault(schedule, plan, "stage 1", "1STEP is the last action: step 1 comes behind it");
  }
  SECTION("before a reduction") {
    swap_actions(middle, {K::AllReduce, 1}, {K::OptimizerStep, 0});
    check_only_fault(schedule, plan, "stage 1",
                     "1STEP stands before 1REDUCE_GRAD1: the step is the stage's last action");
  }
  SECTION("missing") {
    drop(middle, {K::OptimizerStep, 1});
    check_only_fault(schedule, plan, "stage 1", "1STEP is the last action: step 1 comes behind it");
  }
  SECTION("of no bucket") {
    middle.actions.push_back({K::OptimizerStep, 2, StageIndex{1}});
    check_only_fault(schedule, plan, "stage 1",
                     "1STEP2 is of a bucket that is not there: the stage has 2");
  }
}

TEST_CASE("actions that do not belong to a lane are refused") {
  Plan plan = straight_plan(4, {2, 1});
  replicate(plan, {1, 2}, true, 1);
  Schedule schedule = generate(plan);
  const auto prepend = [&](std::size_t lane, Action action) {
    action.stage = schedule.lanes[lane].stages.front();
    schedule.lanes[lane].actions.insert(schedule.lanes[lane].actions.begin(), action);
  };
  SECTION("a micro-batch that is not there") {
    prepend(0, {K::SendActivation, 4});
    check_only_fault(schedule, plan, "stage 0",
                     "0SEND_F4 is of a micro-batch that is not there: the plan has 4");
  }
  SECTION("a negative one") {
    prepend(0, {K::SendActivation, -1});
    check_only_fault(schedule, plan, "stage 0",
                     "0SEND_F-1 is of a micro-batch that is not there: the plan has 4");
  }
  SECTION("another replica's") {
    prepend(1, {K::SendGradient, 3});
    check_only_fault(schedule, plan, "stage 1 replica 0",
                     "1SEND_B3 is of a micro-batch dealt to replica 1");
  }
  SECTION("beyond the ends of the pipeline") {
    prepend(0, {K::ReceiveActivation, 0});
    check_only_fault(schedule, plan, "stage 0",
                     "0RECV_F0 has nobody at its other end: the stage is the first");
  }
  SECTION("beyond the last stage") {
    prepend(1, {K::SendActivation, 0});
    check_only_fault(schedule, plan, "stage 1 replica 0",
                     "1SEND_F0 has nobody at its other end: the stage is the last");
  }
  SECTION("a bucket that is not there") {
    prepend(2, {K::AllReduce, 1});
    check_only_fault(schedule, plan, "stage 1 replica 1",
                     "1REDUCE_GRAD1 reduces a bucket that is not there: the stage has 1");
  }
  SECTION("a second step under another number") {
    prepend(0, {K::OptimizerStep, 1});
    check_only_fault(schedule, plan, "stage 0", "0STEP1 has a number, but there is one step");
  }
  SECTION("twice") {
    prepend(2, {K::ReceiveActivation, 1});
    check_only_fault(schedule, plan, "stage 1 replica 1", "1RECV_F1 stands more than once");
  }
}

TEST_CASE("a schedule may have no more in flight than the warm-up depth") {
  const Schedule schedule = generate(straight_plan(4, {3, 2}));
  const Plan plan = straight_plan(4, {2, 2});
  check_only_fault(schedule, plan, "stage 0",
                   "3 micro-batches in flight at 0F2, more than the warm-up depth of 2");
  // Fewer are allowed.
  CHECK(validate(schedule, straight_plan(4, {4, 4})).empty());
}

TEST_CASE("a schedule of another plan is refused") {
  const Schedule schedule = generate(straight_plan(2, {2, 1}));
  check_only_fault(schedule, straight_plan(2, {2, 1, 1}), "", "expected 3 lanes, got 2");
  check_only_fault(schedule, straight_plan(3, {2, 1}), "", "expected 3 micro-batches, got 2");
  Plan elsewhere = straight_plan(2, {2, 1});
  elsewhere.stages[1].devices = {DeviceIndex{5}};
  check_only_fault(schedule, elsewhere, "", "lane 1: expected the devices of the plan's stage 1");
  Schedule exchanged = schedule;
  std::swap(exchanged.lanes[0], exchanged.lanes[1]);
  CHECK(validate(exchanged, straight_plan(2, {2, 1})).size() == 2);
}

TEST_CASE("sends that overtake each other on a stream deadlock where both ends wait for it") {
  // Stage 0 sends 1 before 0, so that 0 leaves only when 1 is made; with one in flight that is
  // after the gradient of 0 has come back.
  const Plan plan = straight_plan(2, {1, 1});
  Schedule schedule = generate(plan);
  drop(schedule.lanes[0], {K::SendActivation, 0});
  Lane& lane = schedule.lanes[0];
  lane.actions.insert(lane.actions.begin() +
                          static_cast<std::ptrdiff_t>(position_of(lane, {K::SendActivation, 1})) +
                          1,
                      Action{K::SendActivation, 0});
  check_only_fault(schedule, plan, "",
                   "deadlock: stage 0 waits at 0B0 for 1SEND_B0; stage 1 waits at 1F0 for "
                   "0SEND_F0");
}

/// Runs a schedule by going over all lanes until nothing moves: slow, and of no shared code.
/// Stops a lane at the first action that cannot run yet, so receives block here; where sends stand
/// right behind what they send, that is the same.
bool ends(const Schedule& schedule) {
  std::set<std::string> done;
  std::vector<std::size_t> next(schedule.lanes.size());
  const auto has_run = [&](std::int32_t stage, const char* name, std::int32_t index) {
    return done.count(std::to_string(stage) + name + std::to_string(index)) != 0;
  };
  bool moved = true;
  while (moved) {
    moved = false;
    for (std::size_t i = 0; i < schedule.lanes.size(); ++i) {
      const Lane& lane = schedule.lanes[i];
      if (next[i] == lane.actions.size()) continue;
      const Action action = lane.actions[next[i]];
      if (action.kind == K::ReceiveActivation &&
          !has_run(action.stage.value - 1, "SEND_F", action.index)) {
        continue;
      }
      if (action.kind == K::ReceiveGradient &&
          !has_run(action.stage.value + 1, "SEND_B", action.index)) {
        continue;
      }
      done.insert(to_text(action));
      ++next[i];
      moved = true;
    }
  }
  for (std::size_t i = 0; i < next.size(); ++i) {
    if (next[i] != schedule.lanes[i].actions.size()) return false;
  }
  return true;
}

TEST_CASE("the dry run agrees with a naive one on random orders, dealt and split") {
  RandomSequence random(7);
  const auto draw = [&](std::size_t count) { return random() % count; };
  int ended = 0;
  int stuck = 0;
  for (int round = 0; round < 2000; ++round) {
    const std::size_t stages = 1 + draw(4);
    const auto micro_batches = static_cast<std::int64_t>(2 + draw(5));
    std::vector<std::int64_t> depths;
    std::vector<std::int32_t> replicas;
    for (std::size_t s = 0; s < stages; ++s) {
      depths.push_back(1 +
                       static_cast<std::int64_t>(draw(static_cast<std::size_t>(micro_batches))));
      replicas.push_back(static_cast<std::int32_t>(1 + draw(2)));
    }
    Plan plan = straight_plan(micro_batches, depths);
    replicate(plan, replicas, round % 2 == 0, 0);
    const Schedule schedule = generate(plan);
    const std::vector<Violation> faults = validate(schedule, plan);
    CHECK(faults.empty() == ends(schedule));
    ++(faults.empty() ? ended : stuck);
  }
  CHECK(ended > 100);
  CHECK(stuck > 100);
}

TEST_CASE("a random action dropped, doubled or moved out of place is refused by its name") {
  RandomSequence random(11);
  const auto draw = [&](std::size_t count) { return random() % count; };
  std::map<std::string, int> refusals;
  for (int round = 0; round < 3000; ++round) {
    const std::size_t stages = 1 + draw(4);
    const auto micro_batches = static_cast<std::int64_t>(2 + draw(4));
    std::vector<std::int64_t> depths(stages);
    for (std::int64_t& depth : depths) {
      depth = 1 + static_cast<std::int64_t>(draw(static_cast<std::size_t>(micro_batches)));
    }
    std::sort(depths.rbegin(), depths.rend());
    Plan plan = straight_plan(micro_batches, depths);
    replicate(plan, std::vector<std::int32_t>(stages, 2), false, 2);
    Schedule schedule = generate(plan);
    REQUIRE(validate(schedule, plan).empty());

    Lane& lane = schedule.lanes[draw(stages)];
    const std::size_t position = draw(lane.actions.size());
    const Action action = lane.actions[position];
    const auto place = lane.actions.begin() + static_cast<std::ptrdiff_t>(position);
    const std::string text = to_text(action);
    std::string wanted;
    if (round % 3 == 0) {
      lane.actions.erase(place);
      wanted = text + " is missing: ";
    } else if (round % 3 == 1) {
      lane.actions.insert(place, action);
      wanted = text + " stands more than once";
    } else {
      // An action behind the step, or the step in front, is always out of place.
      lane.actions.erase(place);
      const bool is_step = action.kind == K::OptimizerStep;
      lane.actions.insert(is_step ? lane.actions.begin() : lane.actions.end(), action);
      wanted = "STEP stands before ";
    }
    const std::vector<Violation> faults = validate(schedule, plan);
    const bool is_named = std::any_of(faults.begin(), faults.end(), [&](const Violation& fault) {
      return fault.message.find(wanted) != std::string::npos;
    });
    CAPTURE(text, wanted);
    CHECK(is_named);
    ++refusals[wanted.substr(wanted.find(' '))];
  }
  CHECK(refusals.size() == 3);
}

}  // namespace
}  // namespace dapple
