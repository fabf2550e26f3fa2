// Jobs over wires in memory. Whatever takes a job seconds takes these tests no time, but for waits
// that last until a timeout of 5 ms.

#include "dapple/exec/ranks/rank_job.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "../../../support/job.h"
#include "../../../support/memory_network.h"
#include "../message_key.h"
#include "dapple/core/error.h"
#include "dapple/exec/ranks/failure_agreement.h"

namespace dapple::exec {
namespace {

using namespace small;
using namespace std::chrono_literals;

constexpr const char* kOver = "the job was aborted";

/// What the call throws, or an empty text.
template <class Call>
std::string thrown_by(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) { return error.what(); }
  return "";
}

/// All ranks of a job, on one host.
struct Ranks {
  explicit Ranks(int size, bool is_on_one_host = true)
      : network(size, is_on_one_host),
        topology(full_mesh(static_cast<std::size_t>(size), {{200'000'000'000}, {}})),
        jobs(static_cast<std::size_t>(size)),
        ends(static_cast<std::size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) make(rank, network.wire_of(rank));
  }

  int size() const { return static_cast<int>(jobs.size()); }
  RankJob& job(int rank) { return *jobs[static_cast<std::size_t>(rank)]; }
  Transport& end(int rank) { return *ends[static_cast<std::size_t>(rank)]; }
  std::string name(std::int32_t rank) const {
    return rank_name(rank, topology.device({rank}).name);
  }
  void make(int rank, const RankJob::MakeWire& wire) {
    jobs[static_cast<std::size_t>(rank)] = std::make_unique<RankJob>(wire, network.clock());
  }
  void join(int rank, const RankTransportOptions& options) {
    ends[static_cast<std::size_t>(rank)] = job(rank).join(topology, all_devices(topology), options);
  }
  void join_all(const RankTransportOptions& options) {
    for (int rank = 0; rank < size(); ++rank) join(rank, options);
    network.deliver();
  }
  void forge(int from, int to, const Notice& notice) {
    network.post({.from = from, .to = to, .notice = notice});
    network.deliver();
  }
  /// What the functions of a rank's end throw; empty while the job goes on.
  std::string verdict(int rank) {
    return thrown_by(
        [&] { network.run({[&] { end(rank).send(key(rank, rank, ++probes), HostBytes(1)); }}); });
  }
  bool is_first(int rank) { return job(rank).is_first_to_fail(); }

  MemoryNetwork network;
  Topology topology;
  std::vector<std::unique_ptr<RankJob>> jobs;
  std::vector<std::unique_ptr<Transport>> ends;
  std::int32_t probes = 1'000;
};

TEST_CASE("messages are received by their keys, in any order, also those to oneself") {
  Ranks ranks(3);
  ranks.join_all({});
  for (std::int32_t rank = 0; rank < 3; ++rank) {
    ranks.network.run({[&] {
      for (std::int32_t to = 0; to < 3; ++to) {
        ranks.end(rank).send(key(rank, to, 1), payload_of({static_cast<float>(10 * rank + to)}));
        ranks.end(rank).send(key(rank, to, 2), payload_of({-1}));
      }
    }});
    // Each of them has 4 bytes.
    CHECK(ranks.end(rank).sent() == Bytes{24});
  }
  for (std::int32_t rank = 0; rank < 3; ++rank) {
    for (std::int32_t from = 2; from >= 0; --from) {
      CHECK(floats_of(ranks.end(rank).receive(key(from, rank, 2), {})) == std::vector<float>{-1});
      CHECK(floats_of(ranks.end(rank).receive(key(from, rank, 1), {})) ==
            std::vector<float>{static_cast<float>(10 * from + rank)});
    }
  }
}

TEST_CASE("a paced message is delivered once it and its arrival time are here, in any order") {
  for (const bool is_reversed : {false, true}) {
    Ranks ranks(2);
    ranks.join_all({.pacing = Pacing{}});
    std::int64_t arrival = 0;
    {
      const std::jthread sender(
          [&] { arrival = ranks.end(0).send(key(0, 1), payload_of({1.5F})); });
      // The message, and the notice of its arrival time.
      ranks.network.await_in_flight(2);
      if (is_reversed) ranks.network.reverse();
      ranks.network.deliver();
    }
    CHECK(floats_of(ranks.end(1).receive(key(0, 1), {})) == std::vector<float>{1.5F});
    CHECK(ranks.network.now() >= arrival);
  }
}

TEST_CASE("a message that is sent twice is blamed on its sender") {
  for (const bool is_paced : {false, true}) {
    Ranks ranks(3);
    ranks.join_all({.pacing = is_paced ? std::optional(Pacing{}) : std::nullopt});
    ranks.network.run({[&] { ranks.end(1).send(key(1, 2), HostBytes(8)); }});
    CHECK(ranks.verdict(2).empty());
    ranks.network.run({[&] { thrown_by([&] { ranks.end(1).send(key(1, 2), HostBytes(8)); }); }});
    CHECK(ranks.verdict(2) ==
          ranks.name(1) + (is_paced
                               ? ": expected it to send each message once, but it sent one twice"
                               : ": expected it to send 5SEND_F0 once, but it sent it twice"));
    CHECK(ranks.verdict(0) == kOver);
    CHECK(ranks.verdict(1) == kOver);
  }
}

TEST_CASE("a paced message that comes twice before its arrival time is blamed on its sender") {
  Ranks ranks(2);
  ranks.join_all({.pacing = Pacing{}});
  const HostBytes bytes(8);
  const InFlight message{
      .from = 0,
      .to = 1,
      .frame = {.key = key(0, 1), .size = 8, .number = 1, .awaits_arrival_time = true},
      .bytes = bytes};
  ranks.network.post(message);
  ranks.forge(0, 1, {.kind = NoticeKind::ArrivalTime, .number = 1});
  // An arrival time that is told again is that of nothing.
  ranks.forge(0, 1, {.kind = NoticeKind::ArrivalTime, .number = 1});
  CHECK(ranks.verdict(1).empty());
  InFlight other = message;
  other.frame.number = 2;
  ranks.network.post(other);
  ranks.network.post(other);
  ranks.network.deliver();
  CHECK(ranks.verdict(1) ==
        ranks.name(0) + ": expected it to send 5SEND_F0 once, but it sent it twice");
}

TEST_CASE("a message that another rank sends, or whose bytes or size are others, is named") {
  Ranks ranks(3);
  ranks.join_all({.on_arrival = [](const MessageKey& one, std::span<std::byte> bytes) {
    if (one.action.index == 2) bytes[0] ^= std::byte{4};
  }});
  const HostBytes bytes(8);
  ranks.network.post(
      {.from = 2, .to = 1, .frame = {.key = key(0, 1, 1), .size = 8}, .bytes = bytes});
  ranks.network.deliver();
  CHECK(thrown_by([&] { ranks.end(1).receive(key(0, 1, 1), {}); }) ==
        ranks.name(1) + ": 5SEND_F1: expected a message from " + ranks.name(0) + ", got one from " +
            ranks.name(2) + " in its name");
  ranks.network.run({[&] { ranks.end(0).send(key(0, 1, 2), bytes); },
                     [&] { ranks.end(0).send(key(0, 1, 3), bytes); }});
  CHECK(thrown_by([&] { ranks.end(1).receive(key(0, 1, 2), {}); }) ==
        ranks.name(1) + ": 5SEND_F2: expected the message from " + ranks.name(0) +
            " as it was sent, got other bytes");
  CHECK(thrown_by([&] { ranks.end(1).receive(key(0, 1, 3), {.size = Bytes{9}}); }) ==
        ranks.name(1) + ": 5SEND_F3: expected 9 bytes from " + ranks.name(0) + ", got 8");
  CHECK(ranks.verdict(1).empty());
}

TEST_CASE("waits that last until the timeout say for what") {
  Ranks ranks(3);
  ranks.join_all({.timeout = 5ms});
  CHECK(thrown_by([&] { ranks.end(1).receive(key(0, 1), {}); }) ==
        ranks.name(1) + ": 5SEND_F0: expected a message from " + ranks.name(0) +
            " within 0.005 s, got none");
  ranks.network.stop(2);
  CHECK(thrown_by([&] { ranks.end(1).send(key(1, 2), HostBytes(7)); }) ==
        ranks.name(1) + ": 5SEND_F0: expected " + ranks.name(2) +
            " to receive a message of 7 bytes within 0.005 s, but it did not");
  CHECK(thrown_by([&] { ranks.end(1).barrier(); }) ==
        ranks.name(1) +
            ": barrier: expected all 3 devices within 0.005 s, but rank 0 did not release the "
            "barrier");
  ranks.network.deliver();
  CHECK(thrown_by([&] { ranks.end(0).barrier(); }) ==
        ranks.name(0) + ": barrier: expected all 3 devices within 0.005 s, got 2; " +
            ranks.name(2) + " is missing");
}

TEST_CASE("nobody leaves a barrier before all have come, and the next one is another") {
  Ranks ranks(3);
  ranks.join_all({});
  std::atomic<int> left = 0;
  const auto pass = [&](int rank) {
    ranks.end(rank).barrier();
    ++left;
  };
  {
    const std::jthread first([&] { pass(1); });
    const std::jthread second([&] { pass(2); });
    ranks.network.await_in_flight(2);
    // The arrivals come in the opposite order.
    ranks.network.reverse();
    ranks.network.deliver();
    CHECK(left == 0);
    ranks.network.run({[&] { pass(0); }});
    ranks.network.deliver();
  }
  CHECK(left == 3);
  ranks.network.run({[&] { pass(0); }, [&] { pass(1); }, [&] { pass(2); }});
  CHECK(left == 6);
}

TEST_CASE("ranks that were at a barrier are not yet at the next one") {
  Ranks ranks(3);
  ranks.join_all({.timeout = 5ms});
  ranks.forge(1, 0, {.kind = NoticeKind::BarrierArrival, .number = 1});
  ranks.forge(2, 0, {.kind = NoticeKind::BarrierArrival, .number = 1});
  CHECK_NOTHROW(ranks.end(0).barrier());
  CHECK(thrown_by([&] { ranks.end(0).barrier(); }) ==
        ranks.name(0) + ": barrier: expected all 3 devices within 0.005 s, got 1; " +
            ranks.name(1) + " is missing");
}

TEST_CASE("the rank that fails first reports, and the others wait for the launcher") {
  Ranks ranks(3);
  ranks.join_all({});
  ranks.end(2).abort();
  ranks.network.pass_without_turns(1ns);
  ranks.end(1).abort();
  ranks.network.deliver();
  for (int rank = 0; rank < 3; ++rank) CHECK(ranks.verdict(rank) == kOver);
  CHECK(thrown_by([&] { ranks.end(2).send(key(2, 0), HostBytes(1)); }) == kOver);
  CHECK(ranks.network.in_flight() == 0);
  const auto before = ranks.network.elapsed();
  CHECK(ranks.is_first(2));
  CHECK(ranks.network.elapsed() - before == kGracePeriod);
  CHECK_FALSE(ranks.is_first(1));
  CHECK_FALSE(ranks.is_first(0));
  CHECK(ranks.network.elapsed() - before == 3 * kGracePeriod + 2 * MemoryNetwork::kLauncherGrace);
}

TEST_CASE("of ranks that fail at the same time the lowest reports") {
  Ranks ranks(3);
  ranks.join_all({});
  ranks.end(2).abort();
  ranks.end(1).abort();
  ranks.network.deliver();
  CHECK(ranks.is_first(1));
  CHECK_FALSE(ranks.is_first(2));
}

TEST_CASE("failures are compared by the clock of rank 0") {
  Ranks ranks(2);
  ranks.network.set_clock_offset(1, -1);
  ranks.join_all({});
  ranks.end(0).abort();
  ranks.end(1).abort();
  ranks.network.deliver();
  CHECK(ranks.is_first(1));
  CHECK_FALSE(ranks.is_first(0));
}

TEST_CASE("a failure that is noticed later than the own one, but was earlier, comes first") {
  Ranks ranks(2);
  ranks.join_all({});
  ranks.end(0).abort();
  ranks.forge(1, 0, {.kind = NoticeKind::Failure, .moment = ranks.network.now() - 1});
  CHECK_FALSE(ranks.is_first(0));
}

TEST_CASE("a rank that goes silently is missed by the next one after 0.9 of the timeout") {
  Ranks ranks(3);
  ranks.join_all({.timeout = 10s});
  ranks.end(1).announce({ActionKind::Forward, 3, {1}});
  // Heartbeats go every 500 ms: the last one of rank 1 at 10 ms + 500 ms.
  ranks.network.pass(1s);
  ranks.network.drop(1);
  ranks.network.pass(8'500ms);
  CHECK(ranks.verdict(0).empty());
  CHECK(ranks.verdict(2).empty());
  ranks.network.pass(10ms);  // 9.51 s, which is 0.51 s + 0.9 x 10 s
  CHECK(ranks.verdict(2) == ranks.name(1) + ": 1F3: no heartbeat for 9 s");
  CHECK(ranks.verdict(0) == kOver);
  CHECK(ranks.is_first(2));
  CHECK_FALSE(ranks.is_first(0));
}

TEST_CASE("a rank that goes before it has told an action is missed at the start") {
  Ranks ranks(2);
  ranks.join_all({.timeout = 10s});
  ranks.network.pass(20ms);
  ranks.network.drop(1);
  ranks.network.pass(10s);
  CHECK(ranks.verdict(0) == ranks.name(1) + ": start: no heartbeat for 9 s");
}

TEST_CASE("a rank whose connection breaks is reported by the next one at once") {
  Ranks ranks(3);
  ranks.join_all({});
  ranks.end(1).announce({ActionKind::Backward, 7, {1}});
  ranks.network.pass(20ms);
  ranks.network.cut(1);
  ranks.network.pass(10ms);
  CHECK(ranks.verdict(2) == ranks.name(1) + ": 1B7: terminated or became unreachable");
  CHECK(ranks.verdict(0) == kOver);
  CHECK(ranks.is_first(2));
}

TEST_CASE("a rank whose connection breaks is reported by others after a delay") {
  Ranks ranks(4);
  ranks.join_all({});
  ranks.end(1).announce({ActionKind::Backward, 7, {1}});
  ranks.end(3).announce({ActionKind::Forward, 2, {3}});
  ranks.network.pass(20ms);
  ranks.network.cut(1);
  ranks.network.drop(2);  // the next one, which knows the action
  ranks.network.pass(490ms);
  CHECK(ranks.verdict(0).empty());
  CHECK(ranks.verdict(3).empty());
  ranks.network.pass(10ms);
  CHECK(ranks.verdict(0) == ranks.name(1) + ": terminated or became unreachable");
}

TEST_CASE("a rank that was stopped and comes back leaves the report to those who are gone") {
  Ranks ranks(3);
  ranks.join_all({.timeout = 10s});
  ranks.network.pass(1s);
  ranks.network.stop(1);
  ranks.network.pass(10s);
  CHECK(ranks.verdict(2) == ranks.name(1) + ": start: no heartbeat for 9 s");
  ranks.network.cut(2);
  ranks.network.cut(0);
  ranks.network.go_on(1);
  ranks.network.pass(10ms);
  CHECK(ranks.verdict(1) == kOver);
  CHECK_FALSE(ranks.is_first(1));
}

TEST_CASE("a rank whose job is over is silent") {
  Ranks ranks(2);
  ranks.join_all({});
  ranks.end(0).abort();
  ranks.network.deliver();
  // Messages to a stopped rank stay in flight.
  ranks.network.stop(1);
  ranks.network.pass(2s);
  CHECK(ranks.network.in_flight() == 0);
}

TEST_CASE("ranks that were all stopped go on") {
  Ranks ranks(3);
  ranks.join_all({.timeout = 10s});
  ranks.network.pass(1s);
  ranks.network.pass_without_turns(1h);
  ranks.network.pass(20s);
  for (int rank = 0; rank < 3; ++rank) CHECK(ranks.verdict(rank).empty());
}

TEST_CASE("ranks that were given something else are named by both neighbours") {
  for (const bool is_late : {false, true}) {
    Ranks ranks(3);
    ranks.network.stop(1);
    ranks.join(0, {.agreement = "plan"});
    ranks.join(1, {.agreement = "another plan"});
    // The notice of the previous rank may come before this one joins.
    if (is_late) ranks.network.deliver();
    ranks.join(2, {.agreement = "plan"});
    ranks.network.deliver();
    CHECK(ranks.verdict(2) == ranks.name(2) + ": expected the plan and the options that " +
                                  ranks.name(1) + " was given, got others");
    CHECK_THROWS_AS(ranks.end(2).receive(key(0, 2), {}), Error);
    CHECK(ranks.verdict(0) == kOver);
    ranks.network.go_on(1);
    ranks.network.deliver();
    CHECK(ranks.verdict(1) == ranks.name(1) + ": expected the plan and the options that " +
                                  ranks.name(0) + " was given, got others");
  }
}

TEST_CASE("links are paced on one host only") {
  Ranks ranks(2, false);
  CHECK_FALSE(ranks.job(0).is_on_one_host());
  CHECK(thrown_by([&] { ranks.join(0, {.pacing = Pacing{}}); }) ==
        "expected unpaced links, or all ranks on one host, as hosts cannot share paced links; got "
        "paced links and several hosts");
  CHECK_NOTHROW(ranks.join(1, {}));
}

TEST_CASE("a notice that its sender may not send is blamed on the sender") {
  struct Forgery {
    NoticeKind kind;
    int from;
    int to;
    const char* name;
  };
  for (const Forgery& forged : {Forgery{NoticeKind::BarrierArrival, 2, 1, "barrier arrival"},
                                {NoticeKind::BarrierArrival, 0, 0, "barrier arrival"},
                                {NoticeKind::BarrierRelease, 1, 2, "barrier release"},
                                {NoticeKind::Join, 0, 2, "notice that it has joined"},
                                {NoticeKind::Heartbeat, 2, 1, "heartbeat"}}) {
    INFO(static_cast<int>(forged.kind) << " from " << forged.from << " to " << forged.to);
    Ranks ranks(3);
    ranks.join_all({});
    ranks.forge(forged.from, forged.to, {.kind = forged.kind, .number = 1});
    CHECK(ranks.verdict(forged.to) == ranks.name(forged.from) + ": expected it to send rank " +
                                          std::to_string(forged.to) + " no " + forged.name +
                                          ", but it did");
    CHECK(ranks.verdict((forged.to + 1) % 3) == kOver);
  }
}

TEST_CASE("notices from before the wire is complete are judged once it is") {
  const auto verdict = [&](int rank, const Notice& early) {
    Ranks ranks(3);
    ranks.make(rank,
               ranks.network.wire_of(rank, [&](WireHandler& handler) { handler.notice(early); }));
    ranks.join_all({});
    return ranks.verdict(rank);
  };
  // A rank calls others by their devices once it has joined; this fault was earlier.
  CHECK(verdict(1, {.kind = NoticeKind::BarrierRelease, .from = 2}) ==
        "rank 2: expected it to send rank 1 no barrier release, but it did");
  CHECK(verdict(1, {.kind = NoticeKind::Heartbeat, .from = 0}).empty());
  CHECK(verdict(1, {.kind = NoticeKind::Failure, .from = 2}) == kOver);
}

TEST_CASE("a fault from before the wire is complete ends all ranks") {
  Ranks ranks(2);
  ranks.make(1, ranks.network.wire_of(1, [](WireHandler& handler) {
    handler.fault(std::make_exception_ptr(Error(ErrorKind::Environment, "wire", {{"", "broke"}})));
  }));
  ranks.join_all({});
  CHECK(ranks.verdict(1) == "wire: broke");
  CHECK(ranks.verdict(0) == kOver);
  CHECK(ranks.is_first(1));
}

TEST_CASE("all ranks finish together") {
  Ranks ranks(3);
  ranks.join_all({});
  ranks.network.run({[&] { ranks.job(0).finish(); }, [&] { ranks.job(1).finish(); },
                     [&] { ranks.job(2).finish(); }});
  CHECK(ranks.verdict(0).empty());
}

TEST_CASE("a rank that waits for the others to finish says so after the timeout") {
  Ranks ranks(2);
  // The clock goes on by a second whenever it is read.
  RankClock clock = ranks.network.clock();
  clock.now = [&] {
    ranks.network.pass_without_turns(1s);
    return ranks.network.now();
  };
  ranks.jobs[0] = std::make_unique<RankJob>(ranks.network.wire_of(0), clock);
  ranks.join_all({.timeout = 3s});
  CHECK(thrown_by([&] { ranks.job(0).finish(); }) ==
        "rank 0: end: expected all 2 ranks to finish within 3 s, but some did not");
}

TEST_CASE("a rank that waits for the others to finish is told of their failure") {
  Ranks ranks(2);
  ranks.join_all({});
  ranks.end(1).abort();
  ranks.network.deliver();
  CHECK(thrown_by([&] { ranks.job(0).finish(); }) == kOver);
}

}  // namespace
}  // namespace dapple::exec
