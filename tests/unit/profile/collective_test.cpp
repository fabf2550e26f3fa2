// Collectives worked by hand: a ring of n devices moves (n - 1) / n of the tensor in n - 1 rounds
// for an all-gather or a reduce-scatter, and twice that for an all-reduce.

#include <catch2/catch.hpp>

#include "../../support/clusters.h"
#include "../../support/dice.h"
#include "../../support/scaled.h"
#include "dapple/profile/collective.h"

namespace dapple {
namespace {

using small::bytes_per_ns;

GroupShape group_of(const GroupRing& ring) {
  GroupShape group;
  group.rings[0] = ring;
  return group;
}

GroupRing ring(std::int64_t members) {
  return {.members = members, .bandwidth = bytes_per_ns(1), .latency = {3}};
}

TEST_CASE("a collective takes the rounds of a ring, rounded up once") {
  // 100 bytes on four devices: 75 a round trip of three rounds of 3 ns.
  CHECK(collective_time(CollectiveKind::AllGather, {100}, ring(4)) == Duration{75 + 9});
  CHECK(collective_time(CollectiveKind::ReduceScatter, {100}, ring(4)) == Duration{75 + 9});
  CHECK(collective_time(CollectiveKind::AllReduce, {100}, ring(4)) == Duration{150 + 18});
  // 67 and 1/3 ns for two thirds of 101 bytes.
  CHECK(collective_time(CollectiveKind::AllGather, {101}, ring(3)) == Duration{68 + 6});
}

TEST_CASE("one member and no bytes take no time") {
  CHECK(collective_time(CollectiveKind::AllReduce, {100}, ring(1)) == Duration{});
  CHECK(collective_time(CollectiveKind::AllReduce, {0}, ring(4)) == Duration{});
}

TEST_CASE("an all-to-all sends within and between servers at the same time") {
  GroupRing four = ring(4);
  four.members_in_server = 2;
  four.within_server = bytes_per_ns(10);
  four.between_servers = bytes_per_ns(2);
  // A quarter of 400 bytes for the other member here in 10 ns, two for those elsewhere in 100.
  CHECK(collective_time(CollectiveKind::AllToAll, {400}, four) == Duration{100 + 3});
  four.members_in_server = 4;
  CHECK(collective_time(CollectiveKind::AllToAll, {400}, four) == Duration{30 + 3});
}

TEST_CASE("a NIC is busy with what its devices send to other servers") {
  // Four members on two servers of two devices each, whose rings may use 1 B/ns of the 4 B/ns of a
  // server's NICs, which is 2 for each of both devices.
  GroupRing four = ring(4);
  four.members_in_server = 2;
  four.within_server = bytes_per_ns(10);
  four.between_servers = bytes_per_ns(2);
  // The ring carries 2 * 3/4 * 400 bytes over each hop; the NICs take them in 150 ns.
  CHECK(nic_use(CollectiveKind::AllReduce, {400}, four) == NicUse{{600 + 18}, {150}});
  CHECK(nic_use(CollectiveKind::AllGather, {400}, four) == NicUse{{300 + 9}, {75}});
  CHECK(nic_use(CollectiveKind::ReduceScatter, {401}, four) == NicUse{{301 + 9}, {76}});
  // Two quarters of 400 bytes are for the other server.
  CHECK(nic_use(CollectiveKind::AllToAll, {400}, four) == NicUse{{100 + 3}, {100}});
  four.within_server = bytes_per_ns(1);
  four.between_servers = bytes_per_ns(4);
  CHECK(nic_use(CollectiveKind::AllToAll, {400}, four) == NicUse{{100 + 3}, {50}});
  four.members_in_server = 4;
  CHECK(nic_use(CollectiveKind::AllReduce, {400}, four) == NicUse{});
  CHECK(nic_use(CollectiveKind::AllReduce, {0}, four) == NicUse{});
}

TEST_CASE("a collective passes the ring of its members") {
  GroupShape group;
  group.rings = {ring(2), ring(4), {}};
  const std::vector<Collective> over_context{{.kind = CollectiveKind::AllGather,
                                              .over = CollectiveMembers::Context,
                                              .size_per_sample = {100}}};
  CHECK(collectives_time(over_context, 1, group) == Duration{75 + 9});
}

TEST_CASE("what was measured replaces the links, halved for the halves of an all-reduce") {
  GroupRing measured = ring(2);
  measured.measured = {{{100}, {200}}, {{300}, {401}}};
  CHECK(collective_time(CollectiveKind::AllReduce, {100}, measured) == Duration{200});
  CHECK(collective_time(CollectiveKind::AllReduce, {200}, measured) == Duration{301});
  CHECK(collective_time(CollectiveKind::AllGather, {200}, measured) == Duration{151});
  CHECK(collective_time(CollectiveKind::AllReduce, {600}, measured) == Duration{802});
  // Below the smallest measurement the links count, 50 + 6 ns, but never more than that.
  CHECK(collective_time(CollectiveKind::AllReduce, {50}, measured) == Duration{56});
  measured.latency = {1'000};
  CHECK(collective_time(CollectiveKind::AllReduce, {50}, measured) == Duration{200});
}

TEST_CASE("all collectives of a layer follow each other, as often as they are counted") {
  const std::vector<Collective> list{
      {.kind = CollectiveKind::AllReduce, .size_per_sample = {50}, .count = 2},
      {.kind = CollectiveKind::AllGather, .size_per_sample = {10}, .count = 1}};
  // Two samples: 100 and 20 bytes over two devices.
  CHECK(collectives_time(list, 2, group_of(ring(2))) == Duration{2 * (100 + 6) + (10 + 3)});
}

TEST_CASE("figures up to the largest that files hold do not overflow") {
  const GroupRing slow{.members = 1024, .bandwidth = {kMaxCount}, .latency = {}};
  const Duration time = collective_time(CollectiveKind::AllReduce, {kMaxCount}, slow);
  CHECK(time == Duration{1'998'046'875});
  // On the slowest link they are cut off; no plan with such times is costed.
  const GroupRing slowest{.members = 2, .bandwidth = {1}, .latency = {5}};
  CHECK(collective_time(CollectiveKind::AllGather, {kMaxCount}, slowest) ==
        Duration{kMaxCount + 5});
}

TEST_CASE("the least time per sample is below that of every number of samples") {
  small::Dice dice(511);
  for (int round = 0; round < small::scaled(2000); ++round) {
    GroupRing some{.members = dice.roll(2, 9),
                   .bandwidth = {dice.roll(1, 3'000'000'000)},
                   .latency = {dice.roll(0, 500)}};
    std::int64_t size = 0;
    std::int64_t time = 0;
    for (std::int64_t points = dice.roll(0, 3); points > 0; --points) {
      size += dice.roll(1, 200);
      time += dice.roll(1, 400);
      some.measured.push_back({{size}, {time}});
    }
    const std::vector<Collective> list{{.kind = kCollectiveKinds[dice.roll(0, 3)],
                                        .size_per_sample = {dice.roll(0, 60)},
                                        .count = dice.roll(1, 3)}};
    const std::int64_t most = dice.roll(1, 12);
    const double least = least_collectives_per_sample(list, most, group_of(some));
    double reached = 1e300;
    for (std::int64_t samples = 1; samples <= most; ++samples) {
      const auto of_all = static_cast<double>(collectives_time(list, samples, group_of(some)).ns);
      REQUIRE(least * static_cast<double>(samples) <= of_all + 1e-6);
      reached = std::min(reached, of_all / static_cast<double>(samples));
    }
    // Not more than what rounding up may have added below the least of them.
    REQUIRE(least >= reached - 2.0 * static_cast<double>(list.front().count) - 1e-6);
  }
}

}  // namespace
}  // namespace dapple
