// Schedules of plans in which several stages hold the same parameters.

#include <catch2/catch.hpp>

#include <algorithm>

#include "../../support/plans.h"
#include "dapple/schedule/device_schedule.h"

namespace dapple {
namespace {

using namespace small;

CostedPlan first_and_last_tied() {
  ModelProfile profile = model_of({{.forward = 1, .backward = 2, .output = 1, .parameters = 4},
                                   {.forward = 1, .backward = 2, .output = 1, .parameters = 4},
                                   {.forward = 1, .backward = 2, .parameters = 4}});
  profile.ties = {{{0}, {{2}}}};
  return {profile, full_mesh(4, {bytes_per_ns(1), {}}),
          PlanShape{.micro_batch_size = 2,
                    .num_micro_batches = 1,
                    .depths = {1, 1, 1},
                    .stages = {{.devices = {0}}, {.devices = {1}}, {.devices = {2, 3}}}}};
}

TEST_CASE("the order of a plan with tied layers is valid") {
  const CostedPlan pipeline = first_and_last_tied();
  CHECK(validate(generate(pipeline.plan), pipeline.plan).empty());
}

TEST_CASE("what is tied is reduced behind the buckets and before the step, where it is held") {
  const CostedPlan pipeline = first_and_last_tied();
  CHECK(to_text(generate(pipeline.plan), pipeline.topology) ==
        "node0:0: 0F0 0SEND_F0 0RECV_B0 0B0 0REDUCE_TIED0 0STEP\n"
        "node0:1: 1RECV_F0 1F0 1SEND_F0 1RECV_B0 1B0 1SEND_B0 1STEP\n"
        "node0:2: 2RECV_F0 2F0 2B0 2SEND_B0 2REDUCE_GRAD0 2REDUCE_TIED0 2STEP\n"
        "node0:3: 2RECV_F0 2F0 2B0 2SEND_B0 2REDUCE_GRAD0 2REDUCE_TIED0 2STEP\n");
}

TEST_CASE("everyone who holds a tied gradient is told of all others") {
  const CostedPlan pipeline = first_and_last_tied();
  for (const DeviceSchedule& device : device_schedules(generate(pipeline.plan), pipeline.costs)) {
    for (const DeviceAction& entry : device.actions) {
      if (entry.action.kind != ActionKind::ReduceTied) continue;
      CHECK(entry.size.count == 4);
      std::vector<DeviceIndex> members{device.device};
      for (const SchedulePeer& peer : entry.peers) members.push_back(peer.device);
      std::sort(members.begin(), members.end());
      CHECK(members == std::vector<DeviceIndex>{{0}, {2}, {3}});
    }
  }
}

TEST_CASE("the text form has it both ways") {
  const std::vector<Action> actions = parse_actions("2REDUCE_TIED1 0STEP");
  CHECK(actions.front() == Action{ActionKind::ReduceTied, 1, {2}});
  CHECK(to_text(actions) == "2REDUCE_TIED1 0STEP");
}

TEST_CASE("a reduction of tied gradients at the wrong place is named") {
  const CostedPlan pipeline = first_and_last_tied();
  const auto fault_of = [&](std::size_t lane, auto change) {
    Schedule schedule = generate(pipeline.plan);
    change(schedule.lanes[lane].actions);
    const std::vector<Violation> faults = validate(schedule, pipeline.plan);
    return faults.empty() ? "" : faults.front().place + ": " + faults.front().message;
  };
  using Actions = std::vector<Action>;
  const auto tied = [](Actions& actions) {
    return std::find_if(actions.begin(), actions.end(),
                        [](const Action& action) { return action.kind == ActionKind::ReduceTied; });
  };
  CHECK(fault_of(0, [&](Actions& actions) { actions.erase(tied(actions)); }) ==
        "stage 0: 0REDUCE_TIED0 is missing: gradients that other stages hold too are never "
        "reduced");
  CHECK(fault_of(0, [&](Actions& actions) { actions.insert(tied(actions), *tied(actions)); }) ==
        "stage 0: 0REDUCE_TIED0 reduces what is not to be reduced here");
  CHECK(fault_of(0, [&](Actions& actions) { tied(actions)->index = 1; }) ==
        "stage 0: expected 0REDUCE_TIED0, got 0REDUCE_TIED1");
  CHECK(fault_of(0, [&](Actions& actions) { std::swap(*tied(actions), *(tied(actions) - 1)); }) ==
        "stage 0: 0REDUCE_TIED0 stands before 0B0: tied gradients come last");
  CHECK(fault_of(2, [&](Actions& actions) { std::swap(*tied(actions), *(tied(actions) - 1)); }) ==
        "stage 2: 2REDUCE_TIED0 stands before 2REDUCE_GRAD0: tied gradients come last");
  CHECK(fault_of(1, [&](Actions& actions) {
          actions.insert(actions.end() - 1, {ActionKind::ReduceTied, 0, {1}});
        }) == "stage 1: 1REDUCE_TIED0 reduces what is not to be reduced here");
}

TEST_CASE("stages of one device reduce what they hold together once") {
  Plan plan{.global_batch_size = 2,
            .micro_batch_size = 1,
            .num_micro_batches = 2,
            .family = ScheduleFamily::BreadthFirst,
            .warmup_depths = {2, 2, 2, 2},
            .chunks_per_device = 2,
            .stages = {}};
  for (std::int32_t s = 0; s < 4; ++s) {
    plan.stages.push_back({.layers = {s, s + 1}, .devices = {{s % 2}}, .gradient_buckets = {}});
  }
  plan.tied_gradients = {{{0}, {{0}, {2}}}, {{1}, {{1}, {2}}}};
  const Schedule schedule = generate(plan);
  CHECK(validate(schedule, plan).empty());
  const auto reductions_of = [&](std::size_t lane) {
    std::vector<Action> found;
    for (const Action& action : schedule.lanes[lane].actions) {
      if (reduces(action.kind)) found.push_back(action);
    }
    return to_text(found);
  };
  CHECK(reductions_of(0) == "0REDUCE_TIED0 2REDUCE_TIED1");
  CHECK(reductions_of(1) == "1REDUCE_TIED1");
}

}  // namespace
}  // namespace dapple
