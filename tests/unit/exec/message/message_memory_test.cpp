#include "dapple/exec/message/message_memory.h"

#include <catch2/catch.hpp>

namespace dapple::exec {
namespace {

/// Stage 1 of three, of micro-batches whose samples two devices send and one takes in.
DeviceSchedule middle() {
  DeviceSchedule device{.device = {2}, .stages = {{1}}, .actions = {}};
  for (std::int32_t batch = 0; batch < 4; ++batch) {
    device.actions.push_back({{ActionKind::ReceiveActivation, batch, {1}},
                              {{{0}, {}, {1'000}}, {{1}, {}, {500}}},
                              {1'500}});
    device.actions.push_back({{ActionKind::Forward, batch, {1}}, {}, {}});
    device.actions.push_back(
        {{ActionKind::SendActivation, batch, {1}}, {{{4}, {}, {9'000}}}, {9'000}});
    device.actions.push_back(
        {{ActionKind::ReceiveGradient, batch, {1}}, {{{4}, {}, {9'000}}}, {9'000}});
  }
  device.actions.push_back({{ActionKind::AllReduce, 0, {1}}, {{{3}, {}, {100}}}, {100}});
  return device;
}

TEST_CASE("peers are those of messages, not of reductions") {
  CHECK(message_peers(middle()) == std::vector<DeviceIndex>{{0}, {1}, {4}});
}

/// A plan of three stages, of four micro-batches.
Plan three_stages() {
  Plan plan;
  plan.num_micro_batches = 4;
  plan.warmup_depths = {3, 2, 1};
  plan.stages.resize(3);
  plan.stages[0].devices = {{0}, {1}};
  plan.stages[1].devices = {{2}, {3}};
  plan.stages[2].devices = {{4}};
  return plan;
}

TEST_CASE("memory of messages is what the earlier stage has in flight, and one that is used") {
  Plan plan = three_stages();
  // Activations: (3 + 1) x (1,024 + 512); gradients: (2 + 1) x 9,216; and 512 that keep it.
  CHECK(message_memory(plan, middle()).count == 4 * 1'536 + 3 * 9'216 + 512);
  // No more than there are: (2 + 1) of each.
  plan.num_micro_batches = 2;
  CHECK(message_memory(plan, middle()).count == 3 * 1'536 + 3 * 9'216 + 512);
}

TEST_CASE("all replicas to which micro-batches are dealt have some in flight, each as many") {
  Plan plan = three_stages();
  plan.num_micro_batches = 8;
  plan.stages[0].replication = Replication::Deal;
  // Activations: (2 x 3 + 1) x (1,024 + 512); gradients: (2 + 1) x 9,216.
  CHECK(message_memory(plan, middle()).count == 7 * 1'536 + 3 * 9'216 + 512);
  // Gradients come back to the replica that the micro-batch is dealt to.
  plan.stages[1].replication = Replication::Deal;
  CHECK(message_memory(plan, middle()).count == 7 * 1'536 + 3 * 9'216 + 512);
  // No more than there are: (4 + 1) of the activations.
  plan.num_micro_batches = 4;
  CHECK(message_memory(plan, middle()).count == 5 * 1'536 + 3 * 9'216 + 512);
}

}  // namespace
}  // namespace dapple::exec
