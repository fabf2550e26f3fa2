#include "dapple/simulate/device_memory.h"

#include <catch2/catch.hpp>
#include <vector>

using namespace dapple;

TEST_CASE("each stage of a device holds its own stash of its micro-batches in flight") {
  // Two stages on one device: two micro-batches of the first and one of the second are in flight
  // when the second runs back, 2 * 10 + 40 bytes. Weights add up, workspaces do not.
  constexpr StageIndex kFirst{0};
  constexpr StageIndex kSecond{1};
  Lane lane;
  lane.stages = {kFirst, kSecond};
  lane.devices = {{0}};
  const auto add = [&](ActionKind kind, StageIndex stage, std::int32_t micro_batch) {
    lane.actions.push_back({.kind = kind, .index = micro_batch, .stage = stage});
  };
  add(ActionKind::Forward, kFirst, 0);
  add(ActionKind::Forward, kFirst, 1);
  add(ActionKind::Forward, kSecond, 0);
  add(ActionKind::Backward, kSecond, 0);
  add(ActionKind::Backward, kFirst, 0);
  add(ActionKind::Forward, kSecond, 1);
  add(ActionKind::Backward, kSecond, 1);
  add(ActionKind::Backward, kFirst, 1);
  PlanCost costs;
  for (const std::int64_t stash : {10, 40}) {
    ReplicaCost replica;
    replica.device = {0};
    replica.memory.weights = {3};
    replica.memory.workspace = {stash / 2};
    replica.memory.per_micro_batch = {stash};
    costs.stages.emplace_back().replicas = {replica};
  }
  const Schedule schedule{.num_micro_batches = 2, .lanes = {lane}};
  const std::vector<Bytes> peaks =
      simulate::peak_memories(schedule, simulate::device_memory(schedule, costs));
  CHECK(peaks == std::vector<Bytes>{{2 * 3 + 20 + 2 * 10 + 40}});
}
