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

TEST_CASE("a send-receive passes each hop once, whatever its ring") {
  // 100 bytes to the next member, at 1 B/ns: without what is computed meanwhile three of them are
  // an all-gather of the 400 bytes of all four.
  CHECK(collective_time(CollectiveKind::SendReceive, {100}, ring(4)) == Duration{100 + 3});
  CHECK(3 * collective_time(CollectiveKind::SendReceive, {100}, ring(4)) ==
        collective_time(CollectiveKind::AllGather, {400}, ring(4)));
  CHECK(collective_time(CollectiveKind::SendReceive, {100}, ring(1)) == Duration{});
  GroupRing measured = ring(3);
  measured.measured = {{{300}, {900}}};
  // A quarter of the four rounds of an all-reduce of the 300 bytes of all three.
  CHECK(collective_time(CollectiveKind::SendReceive, {100}, measured) == Duration{225});
  // Each of two servers of two devices sends 100 bytes to the other through NICs of 4 B/ns.
  GroupRing four = ring(4);
  four.members_in_server = 2;
  four.between_servers = bytes_per_ns(2);
  CHECK(nic_use(CollectiveKind::SendReceive, {100}, four) == NicUse{{100 + 3}, {25}});
}

TEST_CASE("a step of the core hides so much of a send-receive as it lasts") {
  const auto passed = [](Beside beside) {
    return std::vector<Collective>{{.kind = CollectiveKind::SendReceive,
                                    .size_per_sample = {50},
                                    .count = 3,
                                    .beside = beside}};
  };
  GroupRing four = ring(4);
  four.members_in_server = 2;
  four.between_servers = bytes_per_ns(2);
  const GroupShape group = group_of(four);
  // Two samples: 103 ns a hop, beside a quarter of 163 ns, which is 40 and 3/4, and of 500 ns.
  const CoreTimes core{{163}, {500}};
  CHECK(collectives_time(passed(Beside::Nothing), 2, group, core) == Duration{309});
  CHECK(collectives_time(passed(Beside::ForwardCore), 2, group, core) == Duration{3 * 63});
  CHECK(collectives_time(passed(Beside::BackwardCore), 2, group, core) == Duration{});
  CHECK(collectives_time(passed(Beside::ForwardCore), 2, group, {}) == Duration{309});
  // The NIC is busy for 25 ns of 103 with each: for 15 and 3 / 10 of the 63 that are not hidden.
  CHECK(nic_use(passed(Beside::Nothing), 2, group, core) ==
        PassTraffic{3 * NicUse{{103}, {25}}, {}});
  CHECK(nic_use(passed(Beside::ForwardCore), 2, group, core) ==
        PassTraffic{3 * NicUse{{63}, {16}}, 3 * NicUse{{40}, {9}}});
  CHECK(nic_use(passed(Beside::BackwardCore), 2, group, core) ==
        PassTraffic{{}, 3 * NicUse{{103}, {25}}});
}

TEST_CASE("a collective passes the ring of its members") {
  GroupShape group;
  group.rings = {ring(2), ring(4), {}};
  const std::vector<Collective> over_context{{.kind = CollectiveKind::AllGather,
                                              .over = CollectiveMembers::Context,
                                              .size_per_sample = {100}}};
  CHECK(collectives_time(over_context, 1, group, {}) == Duration{75 + 9});
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
  CHECK(collectives_time(list, 2, group_of(ring(2)), {}) == Duration{2 * (100 + 6) + (10 + 3)});
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
    const bool is_beside = dice.chance(40);
    const std::vector<Collective> list{
        {.kind = is_beside ? CollectiveKind::SendReceive : kCollectiveKinds[dice.roll(0, 4)],
         .size_per_sample = {dice.roll(0, 60)},
         .count = dice.roll(1, 3),
         .beside = is_beside ? Beside::BackwardCore : Beside::Nothing}};
    const std::int64_t most = dice.roll(1, 12);
    // A core that takes as long for fewer samples than it was measured for, or is in proportion.
    const std::int64_t turn = dice.chance(50) ? 0 : dice.roll(1, 9);
    const std::int64_t thirds = dice.roll(0, 600);
    const CoreOfSamples core{
        [&](std::int64_t samples) {
          return CoreTimes{{}, {divide_up(Wide{thirds} * std::max(samples, turn), 3)}};
        },
        {turn}};
    const double least = least_collectives_per_sample(list, most, group_of(some), core);
    double reached = 1e300;
    for (std::int64_t samples = 1; samples <= most; ++samples) {
      const auto of_all =
          static_cast<double>(collectives_time(list, samples, group_of(some), core.at(samples)).ns);
      REQUIRE(least * static_cast<double>(samples) <= of_all + 1e-6);
      reached = std::min(reached, of_all / static_cast<double>(samples));
    }
    // Not more than what rounding may have added below the least of them.
    REQUIRE(least >= reached - 4.0 * static_cast<double>(list.front().count) - 1e-6);
  }
}

}  // namespace
}  // namespace dapple
