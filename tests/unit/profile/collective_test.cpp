// Collectives worked by hand: a ring of n devices moves (n - 1) / n of the tensor in n - 1 rounds
// for an all-gather or a reduce-scatter, and twice that for an all-reduce.

#include <catch2/catch.hpp>

#include "../../support/clusters.h"
#include "../../support/dice.h"
#include "../../support/scaled.h"
#include "dapple/profile/collective.h"
#include "dapple/profile/limits.h"

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

TEST_CASE("a merging dispatcher sends a token once to each other server, where it is sent on") {
  GroupRing four = ring(4);
  four.members_in_server = 2;
  four.within_server = bytes_per_ns(10);
  four.between_servers = bytes_per_ns(2);
  const MergedCopies two_of_eight{.copies = 2, .experts = 8};
  const auto exchange = [](std::int64_t size, const GroupRing& over, const MergedCopies& merged) {
    return collective_time(CollectiveKind::AllToAll, {size}, over, merged);
  };
  // No copy is for the other server in 4 * 3 of 8 * 7 cases. Of 1,400 tokens with two copies of a
  // byte, 11/14 cross: 1,100 bytes in 550 ns, one more as 11/28 is rounded up, and not half of
  // 2,800 in 700. Within a server each member sends half of what all have for it, in 140 ns.
  CHECK(exchange(2800, four, two_of_eight) == Duration{551 + 3});
  CHECK(nic_use(CollectiveKind::AllToAll, {2800}, four, two_of_eight) == NicUse{{551 + 3}, {551}});
  CHECK(collective_time(CollectiveKind::AllToAll, {2800}, four) == Duration{700 + 3});
  // At 2 B/ns these 1,400 bytes take longer; straight from their senders it would be half of them.
  four.within_server = bytes_per_ns(2);
  CHECK(exchange(2800, four, two_of_eight) == Duration{700 + 3});
  CHECK(nic_use(CollectiveKind::AllToAll, {2800}, four, two_of_eight) == NicUse{{700 + 3}, {551}});
  // All of four experts are chosen, so that one of four copies crosses.
  CHECK(nic_use(CollectiveKind::AllToAll, {1000}, four, MergedCopies{4, 4}).busy == Duration{125});
  // On three servers of two of six experts each: neither copy is for one of them in 4 * 3 of 6 * 5
  // cases, so that 2 * 3/5 of 500 tokens cross.
  GroupRing three = ring(3);
  three.members_in_server = 1;
  three.between_servers = bytes_per_ns(1);
  CHECK(exchange(1000, three, {.copies = 2, .experts = 6}) == Duration{600 + 3});
  const std::vector<Collective> list{{.kind = CollectiveKind::AllToAll,
                                      .size_per_sample = {500},
                                      .count = 2,
                                      .merged = MergedCopies{.copies = 2, .experts = 6}}};
  const GroupShape group = group_of(three);
  CHECK(collectives_time(list, 2, group, {}) == Duration{2 * 603});
  CHECK(nic_use(list, 2, group, {}) == PassTraffic{2 * NicUse{{603}, {600}}, {}});
  // 300 ns and latencies a sample, of two samples less what rounding adds.
  CHECK(least_collectives_per_sample(list, 2, group, {}) == 2 * (603 - 2) / 2.0);
}

TEST_CASE("what has nothing to merge takes as long as without merging") {
  for (const std::int64_t size : {10, 999, 1000, 123'456'789}) {
    const auto same = [&](const GroupRing& some, const MergedCopies& merged) {
      return collective_time(CollectiveKind::AllToAll, {size}, some, merged) ==
                 collective_time(CollectiveKind::AllToAll, {size}, some) &&
             nic_use(CollectiveKind::AllToAll, {size}, some, merged) ==
                 nic_use(CollectiveKind::AllToAll, {size}, some);
    };
    GroupRing six = ring(6);
    six.members_in_server = 2;
    six.within_server = bytes_per_ns(1);
    six.between_servers = bytes_per_ns(3);
    // One copy of each token.
    CHECK(same(six, {.copies = 1, .experts = 12}));
    CHECK_FALSE(same(six, {.copies = 2, .experts = 12}));
    // One server.
    six.members_in_server = 6;
    CHECK(same(six, {.copies = 2, .experts = 12}));
    // One expert on each server, so that no two copies are for one.
    GroupRing three = ring(3);
    three.members_in_server = 1;
    three.between_servers = bytes_per_ns(1);
    CHECK(same(three, {.copies = 2, .experts = 3}));
  }
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
  // All of 2^20 experts are chosen: 65,535 of as many copies cross, 62,499,046.3 billionths.
  const GroupRing servers{
      .members = kMaxGroup, .bandwidth = {1}, .latency = {}, .between_servers = {kMaxCount}};
  CHECK(collective_time(CollectiveKind::AllToAll, {kMaxCount}, servers,
                        MergedCopies{kMaxExperts, kMaxExperts}) == Duration{62'499'047});
}

TEST_CASE("the least time per sample may be that of the last size below the measured ones") {
  // On its links, an all-reduce over two takes a nanosecond per byte; 40 bytes, those of four
  // samples, were measured to take 400.
  GroupRing jumping = ring(2);
  jumping.latency = {};
  jumping.measured = {{{40}, {400}}};
  const std::vector<Collective> list{
      {.kind = CollectiveKind::AllReduce, .size_per_sample = {10}, .count = 1}};
  const GroupShape group = group_of(jumping);
  const auto time = [&](std::int64_t samples) {
    return collectives_time(list, samples, group, {}).ns;
  };
  CHECK(time(1) == 10);
  CHECK(time(3) == 30);
  CHECK(time(4) == 400);
  // Rounding is allowed for, by two nanoseconds of a time: most of all one sample's.
  CHECK(least_collectives_per_sample(list, 4, group, {}) == Approx(8.0));
  jumping.latency = {4};  // 2 * 4 ns beside 10, 20 and 30
  CHECK(least_collectives_per_sample(list, 4, group_of(jumping), {}) == Approx((38.0 - 2) / 3));
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
