#include <catch2/catch.hpp>

#include <string>

#include "dapple/plan/plan.h"
#include "dapple/plan/schedule_family.h"

namespace dapple {
namespace {

TEST_CASE("shares of a micro-batch are consecutive and differ by one sample at most") {
  // 7 samples over 3 replicas: 7 = 3 + 2 + 2.
  CHECK(replica_share(7, 3, 0).begin == 0);
  CHECK(replica_share(7, 3, 0).end == 3);
  CHECK(replica_share(7, 3, 1).begin == 3);
  CHECK(replica_share(7, 3, 1).end == 5);
  CHECK(replica_share(7, 3, 2).begin == 5);
  CHECK(replica_share(7, 3, 2).end == 7);
}

TEST_CASE("shares tile the micro-batch for every size and replica count") {
  for (std::int64_t size = 1; size <= 20; ++size) {
    for (std::int64_t replicas = 1; replicas <= size; ++replicas) {
      std::int64_t covered = 0;
      for (std::int64_t replica = 0; replica < replicas; ++replica) {
        const SampleRange share = replica_share(size, replicas, replica);
        CHECK(share.begin == covered);
        CHECK((share.size() == size / replicas || share.size() == size / replicas + 1));
        covered = share.end;
      }
      CHECK(covered == size);
    }
  }
}

TEST_CASE("a dealt replica works on whole micro-batches, each replica on every r-th") {
  const Plan plan{.global_batch_size = 35,
                  .micro_batch_size = 5,
                  .num_micro_batches = 7,
                  .warmup_depths = {},
                  .stages = {}};
  StagePlan stage;
  stage.devices = {DeviceIndex{0}, DeviceIndex{1}, DeviceIndex{2}};
  // Split: 5 samples over 3 replicas are 2 + 2 + 1, of all 7 micro-batches.
  CHECK(samples_of(plan, stage, 1).begin == 2);
  CHECK(samples_of(plan, stage, 1).end == 4);
  CHECK(samples_of(plan, stage, 2).size() == 1);
  CHECK(micro_batches_of(plan, stage, 2) == 7);
  // Dealt: replica 0 gets micro-batches 0, 3, 6; replica 1 gets 1, 4; replica 2 gets 2, 5.
  stage.replication = Replication::Deal;
  CHECK(samples_of(plan, stage, 2).begin == 0);
  CHECK(samples_of(plan, stage, 2).end == 5);
  CHECK(micro_batches_of(plan, stage, 0) == 3);
  CHECK(micro_batches_of(plan, stage, 1) == 2);
  CHECK(micro_batches_of(plan, stage, 2) == 2);
}

TEST_CASE("a shape lists devices per stage, counts long rows of them, and the micro-batches") {
  const auto shape = [](const std::vector<std::size_t>& replicas, bool recompute = false,
                        std::int64_t chunks = 1) {
    Plan plan;
    plan.chunks_per_device = chunks;
    plan.num_micro_batches = 32;
    plan.micro_batch_size = 64;
    for (const std::size_t count : replicas) {
      StagePlan stage;
      stage.devices.resize(count);
      stage.recompute = recompute;
      plan.stages.push_back(stage);
    }
    return shape_of(plan);
  };
  CHECK(shape({16}) == "16, 32 of 64");
  CHECK(shape({1}) == "1, 32 of 64");
  CHECK(shape({8, 8}) == "8:8, 32 of 64");
  CHECK(shape({1, 1, 1}) == "3 straight, 32 of 64");
  CHECK(shape({2, 2, 2, 2}) == "2:2:2:2, 32 of 64");
  CHECK(shape({4, 2, 2, 2, 2, 2, 1}) == "4:5x2:1, 32 of 64");
  CHECK(shape({1, 1, 1, 1, 1, 1}, false, 2) == "3 straight with 2 stages each, 32 of 64");
  CHECK(shape({8, 4, 8, 4}, false, 2) == "8:4 with 2 stages each, 32 of 64");
  CHECK(shape({11, 5}, true) == "11:5, 32 of 64, recomputing");
}

TEST_CASE("schedule families and replications have the names of the plan file") {
  std::string names;
  for (const ScheduleFamily family : kScheduleFamilies)
    names += std::string(to_string(family)) + ' ';
  CHECK(names == "gpipe 1f1b interleaved breadth-first list-scheduled zb-h1 zb-h2 zb-v given ");
  CHECK(to_string(Replication::Split) == "split");
  CHECK(to_string(Replication::Deal) == "deal");
}

}  // namespace
}  // namespace dapple
