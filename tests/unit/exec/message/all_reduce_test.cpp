#include "dapple/exec/message/all_reduce.h"

#include <catch2/catch.hpp>

#include "../../../support/dice.h"
#include "../../../support/job.h"

namespace dapple::exec {
namespace {

using namespace small;

constexpr Action kReduction{ActionKind::AllReduce, 0, {}};

/// What every member ends up with, and the bytes that passed.
struct ReductionOutcome {
  std::vector<std::vector<float>> values;
  Bytes sent;
};

/// As many members on each server, one after another.
ReductionGroup group_of(std::size_t members, std::size_t servers) {
  ReductionGroup group;
  group.servers.resize(servers);
  for (std::size_t i = 0; i < members; ++i) {
    group.servers[i * servers / members].push_back(index_at<DeviceIndex>(i));
  }
  return group;
}

ReductionOutcome reduce(const std::vector<std::vector<float>>& values, std::size_t servers) {
  const Topology topology(full_mesh(values.size(), {bytes_per_ns(1), {}}));
  ThreadNetwork network(topology, all_devices(topology), {});
  const ReductionGroup group = group_of(values.size(), servers);
  ReductionOutcome outcome;
  outcome.values.resize(values.size());
  side_by_side(values.size(), [&](std::size_t i) {
    const auto end = network.end_of(index_at<DeviceIndex>(i));
    outcome.values[i] = values[i];
    HostReductionBuffer buffer(outcome.values[i]);
    all_reduce(group,
               {.iteration = 0,
                .action = kReduction,
                .step = 0,
                .from = index_at<DeviceIndex>(i),
                .to = index_at<DeviceIndex>(i)},
               buffer, *end);
  });
  outcome.sent = network.sent();
  return outcome;
}

TEST_CASE("every member ends up with the sum") {
  // Whole numbers, so that no order of adding up rounds.
  const ReductionOutcome outcome =
      reduce({{1, 2, 3, 4, 5}, {10, 20, 30, 40, 50}, {7, 7, 7, 7, 7}}, 1);
  for (const std::vector<float>& values : outcome.values) {
    CHECK(values == std::vector<float>{18, 29, 40, 51, 62});
  }
  // Each of 5 floats is sent twice by all but one of three: 2 * 2 * 5 * 4 bytes.
  CHECK(outcome.sent.count == 80);
}

TEST_CASE("in servers and across them the sum is the same, whatever the sizes") {
  Dice dice(3101);
  for (int round = 0; round < 60; ++round) {
    const auto servers = static_cast<std::size_t>(dice.roll(1, 3));
    const std::size_t members = servers * static_cast<std::size_t>(dice.roll(1, 3));
    const auto size = static_cast<std::size_t>(dice.roll(0, 40));
    std::vector<std::vector<float>> values(members, std::vector<float>(size));
    std::vector<float> sum(size);
    for (std::vector<float>& own : values) {
      for (std::size_t k = 0; k < size; ++k) {
        own[k] = static_cast<float>(dice.roll(-1000, 1000));
        sum[k] += own[k];
      }
    }
    CAPTURE(round, servers, members, size);
    for (const std::vector<float>& own : reduce(values, servers).values) REQUIRE(own == sum);
  }
}

TEST_CASE("shards of a ring differ by one element at most, and begin behind each other's end") {
  // There are seven elements, from the tenth on. The members have the second part, the third and
  // the first.
  const ReductionGroup ring = group_of(3, 1);
  const auto shard = [&](std::int32_t member) {
    const ElementRange range = shard_of(ring, {member}, {10, 17});
    return std::pair(range.begin, range.end);
  };
  CHECK(shard(0) == std::pair<std::size_t, std::size_t>{12, 14});
  CHECK(shard(1) == std::pair<std::size_t, std::size_t>{14, 17});
  CHECK(shard(2) == std::pair<std::size_t, std::size_t>{10, 12});
}

TEST_CASE("after the first half every member has the sum of its shard, after the second of all") {
  Dice dice(3103);
  constexpr float kUndefined = -1e30F;
  for (int round = 0; round < 60; ++round) {
    const auto servers = static_cast<std::size_t>(dice.roll(1, 3));
    const std::size_t members = servers * static_cast<std::size_t>(dice.roll(1, 3));
    const auto size = static_cast<std::size_t>(dice.roll(0, 40));
    std::vector<std::vector<float>> values(members, std::vector<float>(size));
    for (std::vector<float>& own : values) {
      for (float& value : own) value = static_cast<float>(dice.roll(1, 1'000'000)) * 1e-3F;
    }
    CAPTURE(round, servers, members, size);
    const std::vector<float> sum = reduce(values, servers).values.front();
    const ReductionGroup group = group_of(members, servers);
    const Topology topology(full_mesh(members, {bytes_per_ns(1), {}}));
    ThreadNetwork network(topology, all_devices(topology), {});
    std::vector<int> holders(size);
    Bytes scattered;
    side_by_side(members, [&](std::size_t i) {
      const auto end = network.end_of(index_at<DeviceIndex>(i));
      const auto key = [&](std::int32_t number) {
        return MessageKey{.iteration = 0,
                          .action = {ActionKind::AllReduce, number, {}},
                          .step = 0,
                          .from = index_at<DeviceIndex>(i),
                          .to = index_at<DeviceIndex>(i)};
      };
      HostReductionBuffer buffer(values[i]);
      reduce_scatter(group, key(0), buffer, *end);
      end->barrier();
      if (i == 0) scattered = network.sent();
      end->barrier();
      const ElementRange own = shard_of(group, index_at<DeviceIndex>(i), {0, size});
      for (std::size_t k = 0; k < size; ++k) {
        if (k < own.begin || k >= own.end) values[i][k] = kUndefined;
      }
      all_gather(group, key(1), buffer, *end);
    });
    for (std::size_t i = 0; i < members; ++i) {
      const ElementRange own = shard_of(group, index_at<DeviceIndex>(i), {0, size});
      for (std::size_t k = own.begin; k < own.end; ++k) ++holders[k];
      // Every element is somebody's, with the bits of an all-reduce.
      REQUIRE(values[i] == sum);
    }
    REQUIRE(holders == std::vector<int>(size, 1));
    // Every element passes r - 1 hops in each half.
    const auto bytes = static_cast<std::int64_t>((members - 1) * size * sizeof(float));
    REQUIRE(scattered.count == bytes);
    REQUIRE(network.sent().count == 2 * bytes);
  }
}

TEST_CASE("all members round alike") {
  Dice dice(3102);
  std::vector<std::vector<float>> values(5, std::vector<float>(101));
  for (std::vector<float>& own : values) {
    for (float& value : own) value = static_cast<float>(dice.roll(1, 1'000'000)) * 1e-3F;
  }
  const ReductionOutcome outcome = reduce(values, 1);
  for (const std::vector<float>& own : outcome.values) CHECK(own == outcome.values.front());
}

TEST_CASE("what a device reduces is known by its members and sizes") {
  DeviceSchedule device{.device = {2}, .stages = {{1}}, .actions = {}};
  const auto reduces = [&](ActionKind kind, std::vector<SchedulePeer> peers, Bytes size) {
    device.actions.push_back({{kind, 0, {1}}, std::move(peers), size});
  };
  reduces(ActionKind::AllReduce, {{{3}, {}, {100}}}, {100});
  reduces(ActionKind::AllReduce, {{{3}, {}, {40}}}, {40});
  reduces(ActionKind::AllReduce, {{{3}, {}, {100}}}, {100});
  reduces(ActionKind::ReduceTied, {{{3}, {}, {8}}, {{0}, {}, {8}}}, {8});
  reduces(ActionKind::SendGradient, {{{1}, {}, {9}}}, {9});
  reduces(ActionKind::ReduceTied, {}, {8});  // all on this device
  Plan plan;
  CHECK(reduction_sizes(plan, device) ==
        ReductionSizes{{{{2}, {3}}, {{40}, {100}}}, {{{0}, {2}, {3}}, {{8}}}});
  // With sharded state, replicas also gather the tied parameters of their stage.
  plan.stages.resize(2);
  plan.stages[0].devices = {{0}};
  plan.stages[1].devices = {{3}, {2}};
  plan.tied_gradients.push_back({.owner = {0}, .stages = {{0}, {1}}});
  plan.parallelism.shards_optimizer = true;
  CHECK(reduction_sizes(plan, device) ==
        ReductionSizes{{{{2}, {3}}, {{8}, {40}, {100}}}, {{{0}, {2}, {3}}, {{8}}}});
}

TEST_CASE("a member alone keeps what it has and sends nothing") {
  const ReductionOutcome outcome = reduce({{1, 2, 3}}, 1);
  CHECK(outcome.values.front() == std::vector<float>{1, 2, 3});
  CHECK(outcome.sent.count == 0);
}

}  // namespace
}  // namespace dapple::exec
