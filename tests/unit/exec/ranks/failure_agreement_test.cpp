#include "dapple/exec/ranks/failure_agreement.h"

#include <catch2/catch.hpp>
#include <chrono>

#include "moments.h"

namespace dapple::exec {
namespace {

using namespace std::chrono_literals;

TEST_CASE("the first rank to fail reports, and the lowest of those that fail at once") {
  const auto is_first = [](const RankFailure& own, const std::vector<RankFailure>& others) {
    FailureAgreement agreement;
    agreement.fail(own);
    for (const RankFailure& other : others) agreement.take_in(other);
    return agreement.is_first();
  };
  CHECK(is_first({100, 1}, {}));
  CHECK(is_first({100, 1}, {{101, 0}}));
  CHECK_FALSE(is_first({100, 1}, {{99, 2}}));
  CHECK(is_first({100, 1}, {{100, 2}}));
  CHECK_FALSE(is_first({100, 1}, {{100, 0}}));
  // The earliest of the others counts, whenever its notice comes.
  CHECK_FALSE(is_first({100, 1}, {{99, 2}, {150, 0}}));
  CHECK_FALSE(is_first({100, 1}, {{150, 0}, {99, 2}}));
}

TEST_CASE("a rank that has not failed itself reports nothing") {
  FailureAgreement agreement;
  CHECK_FALSE(agreement.is_first());
  agreement.take_in({100, 2});
  CHECK_FALSE(agreement.is_first());
}

TEST_CASE("the next rank in the ring reports a loss at once, the others after 500 ms") {
  FailureAgreement agreement;
  const Heartbeat heartbeat;
  CHECK(agreement.response(at(1h), 1, heartbeat) == LossResponse::Wait);
  agreement.note_peer_loss({.rank = 1, .moment = at(0s)});
  CHECK(agreement.response(at(0s), 1, heartbeat) == LossResponse::Report);
  CHECK(agreement.response(at(0s), 0, heartbeat) == LossResponse::Wait);
  CHECK(agreement.response(at(500ms - 1ns), 0, heartbeat) == LossResponse::Wait);
  CHECK(agreement.response(at(500ms), 0, heartbeat) == LossResponse::Report);
}

TEST_CASE("the first loss counts: the others may follow from it") {
  FailureAgreement agreement;
  agreement.note_peer_loss({.rank = 1, .moment = at(0s)});
  agreement.note_peer_loss({.rank = 0, .moment = at(100ms)});
  REQUIRE(agreement.loss());
  CHECK(agreement.loss()->rank == 1);
  CHECK(agreement.response(at(100ms), 0, Heartbeat()) == LossResponse::Wait);
}

TEST_CASE("a rank that was stopped concedes that those who are gone have reported it") {
  FailureAgreement agreement;
  Heartbeat heartbeat;
  heartbeat.start(10s);
  heartbeat.take_in(at(0s), 0);
  CHECK_FALSE(heartbeat.is_previous_missing(at(0s)));
  CHECK_FALSE(heartbeat.is_previous_missing(at(20s)));
  agreement.note_peer_loss({.rank = 1, .moment = at(20'999ms)});
  CHECK(agreement.response(at(21s), 1, heartbeat) == LossResponse::Concede);
  CHECK(agreement.response(at(21s), 0, heartbeat) == LossResponse::Concede);
  // One who goes a second after the return has another reason.
  FailureAgreement later;
  later.note_peer_loss({.rank = 1, .moment = at(21s)});
  CHECK(later.response(at(21s), 1, heartbeat) == LossResponse::Report);
}

}  // namespace
}  // namespace dapple::exec
