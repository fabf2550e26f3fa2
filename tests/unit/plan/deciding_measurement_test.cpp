#include "dapple/plan/deciding_measurement.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>

#include "dapple/profile/recomputation.h"

namespace dapple {
namespace {

constexpr const char* kBothPlans = "an iteration of each plan";

/// A plan of stages with four replicas each.
Plan with_stages(int stages, const Parallelism& form, std::int64_t micro_batch_size = 4) {
  Plan plan{
      .micro_batch_size = micro_batch_size, .parallelism = form, .warmup_depths = {}, .stages = {}};
  for (int i = 0; i < stages; ++i) {
    StagePlan& stage = plan.stages.emplace_back();
    for (int device = 0; device < 4; ++device) stage.devices.push_back(DeviceIndex{4 * i + device});
  }
  return plan;
}

std::string between(const Parallelism& a, const Parallelism& b) {
  return deciding_measurement(with_stages(2, a), with_stages(2, b));
}

TEST_CASE("plans are tied whose times differ by no more than the error of the smaller one") {
  const Factor error{51'939'653};
  // 5.1939653 % of 1000 ns is 51.9 ns.
  CHECK(are_within_error({1000}, {1051}, error));
  CHECK_FALSE(are_within_error({1000}, {1052}, error));
  CHECK(are_within_error({1051}, {1000}, error));
  CHECK_FALSE(are_within_error({1052}, {1000}, error));
  // Without an error only equal times are.
  CHECK(are_within_error({1000}, {1000}, {}));
  CHECK_FALSE(are_within_error({1000}, {1001}, {}));
  // Products of figures as large as they may be.
  CHECK_FALSE(are_within_error({kMaxCount}, {1}, {1000 * kOne.billionths}));
  CHECK(are_within_error({kMaxCount}, {2 * kMaxCount}, kOne));
}

TEST_CASE("a measurement of layers decides where plans differ in one respect") {
  CHECK(between({.tensor = 2}, {.tensor = 4}) ==
        "layers and their collectives with tensor 2 and 4");
  // Sequence parallelism comes with the degree.
  CHECK(between({.tensor = 1}, {.tensor = 2, .sequence = true}) ==
        "layers and their collectives with tensor 1 and 2");
  CHECK(between({.context = 2}, {.context = 1}) ==
        "layers and their collectives with context 2 and 1");
  CHECK(between({.experts = 8}, {.experts = 4}) ==
        "layers and their all-to-alls with experts 8 and 4");
  CHECK(between({.shards_optimizer = true}, {}) ==
        "gathers of parameters and reductions of gradients with the sharding of each plan");
  CHECK(between({.full_shards = 4}, {.full_shards = 2}) ==
        "gathers of parameters and reductions of gradients over 4 and 2 devices");
  CHECK(between({}, {.recomputes = kWholeLayer}) ==
        "backwards of layers with the recomputation of each plan");
}

TEST_CASE("samples are those of one data-parallel rank of a group") {
  // One replica of four devices with a shard each has as many samples on a device as four replicas.
  Plan sharded = with_stages(1, {.full_shards = 4});
  sharded.stages.front().devices.resize(1);
  CHECK(deciding_measurement(with_stages(1, {}), sharded) ==
        "gathers of parameters and reductions of gradients with the sharding of each plan");
  sharded.micro_batch_size = 8;
  CHECK(deciding_measurement(with_stages(1, {}), sharded) ==
        "gathers of parameters and reductions of gradients with the sharding of each plan, at "
        "batches of 1 and 2");
  // The largest share counts: 5 samples are 2 + 1 + 1 + 1.
  CHECK(deciding_measurement(with_stages(1, {.tensor = 2}, 5), with_stages(1, {.tensor = 4}, 4)) ==
        "layers and their collectives with tensor 2 and 4, at batches of 2 and 1");
}

TEST_CASE("plans that differ in several respects have to run") {
  CHECK(between({}, {}) == kBothPlans);
  CHECK(between({.tensor = 2}, {.context = 2}) == kBothPlans);
  CHECK(between({.tensor = 2}, {.tensor = 4, .shards_optimizer = true}) == kBothPlans);
  CHECK(between({.tensor = 2}, {.tensor = 2, .sequence = true}) == kBothPlans);
  CHECK(deciding_measurement(with_stages(1, {.tensor = 2}), with_stages(2, {.tensor = 4})) ==
        kBothPlans);
  CHECK(deciding_measurement(with_stages(2, {}, 4), with_stages(2, {}, 16)) == kBothPlans);
  Plan other = with_stages(2, {.tensor = 4});
  other.family = ScheduleFamily::GPipe;
  CHECK(deciding_measurement(with_stages(2, {.tensor = 2}), other) == kBothPlans);
  other = with_stages(2, {.tensor = 4});
  other.stages.front().recompute = true;
  CHECK(deciding_measurement(with_stages(2, {.tensor = 2}), other) == kBothPlans);
  other = with_stages(2, {.tensor = 4});
  other.stage_forms = {{.tensor = 2}};
  CHECK(deciding_measurement(with_stages(2, {.tensor = 2}), other) == kBothPlans);
}

}  // namespace
}  // namespace dapple
