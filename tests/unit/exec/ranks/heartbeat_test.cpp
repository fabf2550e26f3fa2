#include "dapple/exec/ranks/heartbeat.h"

#include <catch2/catch.hpp>
#include <chrono>

#include "moments.h"

namespace dapple::exec {
namespace {

using namespace std::chrono_literals;

Heartbeat started(std::chrono::nanoseconds timeout) {
  Heartbeat heartbeat;
  heartbeat.start(timeout);
  return heartbeat;
}

TEST_CASE("nothing is sent or missed before the rank has joined") {
  Heartbeat heartbeat;
  heartbeat.take_in(at(0s), 0);
  CHECK_FALSE(heartbeat.due(at(0s), 0));
  CHECK_FALSE(heartbeat.due(at(1h), 0));
  CHECK_FALSE(heartbeat.is_previous_missing(at(1h)));
}

TEST_CASE("a heartbeat is due every twentieth of the timeout") {
  Heartbeat heartbeat = started(10s);  // every 500 ms
  const auto first = heartbeat.due(at(0s), 0);
  REQUIRE(first);
  CHECK(first->kind == NoticeKind::Heartbeat);
  CHECK_FALSE(heartbeat.due(at(499ms), 0));
  CHECK(heartbeat.due(at(500ms), 0));
  // The next one counts from the one that was sent, however late.
  CHECK(heartbeat.due(at(1'300ms), 0));
  CHECK_FALSE(heartbeat.due(at(1'799ms), 0));
  CHECK(heartbeat.due(at(1'800ms), 0));
}

TEST_CASE("the interval is between a millisecond and a second") {
  Heartbeat quick = started(10ms);  // a twentieth is 0.5 ms
  CHECK(quick.due(at(0s), 0));
  CHECK_FALSE(quick.due(at(999us), 0));
  CHECK(quick.due(at(1ms), 0));
  Heartbeat slow = started(1h);  // a twentieth is 3 min
  CHECK(slow.due(at(0s), 0));
  CHECK_FALSE(slow.due(at(999ms), 0));
  CHECK(slow.due(at(1s), 0));
}

TEST_CASE("a new action is told within 50 ms, or within the interval if that is shorter") {
  Heartbeat slow = started(10s);
  CHECK(slow.due(at(0s), 1));
  CHECK_FALSE(slow.due(at(49ms), 2));
  const auto news = slow.due(at(50ms), 2);
  REQUIRE(news);
  CHECK(news->action == 2);
  CHECK_FALSE(slow.due(at(549ms), 2));
  Heartbeat quick = started(200ms);  // every 10 ms
  CHECK(quick.due(at(0s), 1));
  CHECK_FALSE(quick.due(at(9ms), 2));
  CHECK(quick.due(at(10ms), 2));
}

TEST_CASE("a rank is missing once it is silent for nine tenths of the timeout") {
  Heartbeat heartbeat = started(10s);
  // One that has never sent a heartbeat may not have joined yet.
  for (int second = 0; second < 30; ++second) {
    CHECK_FALSE(heartbeat.is_previous_missing(at(1s * second)));
  }
  heartbeat.take_in(at(30s), 0);
  for (int second = 30; second < 39; ++second) {
    CHECK_FALSE(heartbeat.is_previous_missing(at(1s * second)));
  }
  CHECK_FALSE(heartbeat.is_previous_missing(at(39s - 1ns)));
  CHECK(heartbeat.is_previous_missing(at(39s)));
}

TEST_CASE("the last action that the previous rank has told is known") {
  Heartbeat heartbeat = started(10s);
  CHECK_FALSE(heartbeat.previous_action());
  // A forward, whose kind is 0, of micro-batch 3 on stage 5: (0 + 1) 2^56 + 5 2^32 + 3.
  heartbeat.take_in(at(0s), std::uint64_t{1} << 56 | std::uint64_t{5} << 32 | 3);
  CHECK(heartbeat.previous_action() == Action{ActionKind::Forward, 3, {5}});
}

TEST_CASE("a rank that was stopped itself gives the previous one its time anew") {
  Heartbeat heartbeat = started(10s);  // every 500 ms, so away is more than 1.5 s
  heartbeat.take_in(at(0s), 0);
  CHECK_FALSE(heartbeat.is_previous_missing(at(0s)));
  // 1.5 s are not away yet: the 9 s count from 0 s.
  for (int turn = 1; turn < 6; ++turn) {
    CHECK_FALSE(heartbeat.is_previous_missing(at(1'500ms * turn)));
  }
  CHECK(heartbeat.is_previous_missing(at(9s)));
  // 20 s are: the 9 s count from 29 s.
  CHECK_FALSE(heartbeat.is_previous_missing(at(29s)));
  for (int second = 30; second < 38; ++second) {
    CHECK_FALSE(heartbeat.is_previous_missing(at(1s * second)));
  }
  CHECK(heartbeat.is_previous_missing(at(38s)));
}

TEST_CASE("a loss until a second after a stop that others must have noticed is due to it") {
  Heartbeat heartbeat = started(10s);
  heartbeat.take_in(at(0s), 0);
  CHECK_FALSE(heartbeat.is_previous_missing(at(0s)));
  // Others bear 9 s of silence.
  CHECK_FALSE(heartbeat.is_previous_missing(at(9s)));
  CHECK_FALSE(heartbeat.has_caused_loss_at(at(9s)));
  CHECK_FALSE(heartbeat.is_previous_missing(at(18s + 1ns)));
  CHECK(heartbeat.has_caused_loss_at(at(10s)));
  CHECK(heartbeat.has_caused_loss_at(at(19s)));
  CHECK_FALSE(heartbeat.has_caused_loss_at(at(19s + 1ns)));
}

}  // namespace
}  // namespace dapple::exec
