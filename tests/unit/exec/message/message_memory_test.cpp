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

TEST_CASE("memory of messages is what the earlier stage has in flight, and one that is used") {
  Plan plan;
  plan.num_micro_batches = 4;
  plan.warmup_depths = {3, 2, 1};
  // Activations: (3 + 1) x (1,024 + 512); gradients: (2 + 1) x 9,216; and 512 that keep it.
  CHECK(message_memory(plan, middle()).count == 4 * 1'536 + 3 * 9'216 + 512);
  // No more than there are: (2 + 1) of each.
  plan.num_micro_batches = 2;
  CHECK(message_memory(plan, middle()).count == 3 * 1'536 + 3 * 9'216 + 512);
}

}  // namespace
}  // namespace dapple::exec
