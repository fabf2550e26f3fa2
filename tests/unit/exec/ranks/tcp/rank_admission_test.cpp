#include "dapple/exec/ranks/tcp/rank_admission.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <vector>

#include "../moments.h"

namespace dapple::exec {
namespace {

using namespace std::chrono_literals;
using Caller = RankAdmission::Caller;

/// Rank 0 of a job of four ranks, whose secret is "secret" and whose number is 77.
RankAdmission root(std::size_t most_unproven = 8) {
  RankAdmission admission("secret", most_unproven);
  admission.open({.rank = 0, .first = 1, .size = 4, .known_job = 0, .is_silent = true},
                 {.size = 4, .host = 5, .job = 77});
  return admission;
}

Transcript transcript_of(const RankAdmission& admission, Hello hello) {
  Transcript transcript = admission.new_transcript();
  if (hello.port == 0) hello.port = 29'500;
  transcript.hello = words_of(hello);
  transcript.challenge = challenge_of({1, 2, 3, 4});
  return transcript;
}

/// Judges a caller that says this, and knows this secret.
ProvenAnswer judged(RankAdmission& admission, Caller caller, const Hello& hello,
                    const std::string& secret = "secret") {
  const Transcript transcript = transcript_of(admission, hello);
  return admission.judge(caller, transcript, caller_proof(secret, transcript));
}

/// Admits a rank that does all as it should.
void let_in(RankAdmission& admission, Word rank) {
  const Caller caller = admission.enter(at(0s));
  REQUIRE(judged(admission, caller, {.rank = rank, .size = 4}).verdict == Verdict::Welcome);
  CHECK(admission.admit(caller) == static_cast<int>(rank));
}

TEST_CASE("all expected ranks are admitted, in any order, and the lowest missing one is known") {
  RankAdmission admission = root();
  CHECK_FALSE(admission.is_complete());
  CHECK(admission.missing() == 1);
  let_in(admission, 1);
  let_in(admission, 3);
  CHECK(admission.missing() == 2);
  CHECK_FALSE(admission.is_complete());
  let_in(admission, 2);
  CHECK(admission.is_complete());
  CHECK(admission.turned_away().empty());
}

TEST_CASE(
    "a welcome caller is told the job and gets a proof, but is missing until it is admitted") {
  RankAdmission admission = root();
  const Caller caller = admission.enter(at(0s));
  const Hello hello{.rank = 1, .size = 4};
  const ProvenAnswer answer = judged(admission, caller, hello);
  CHECK(answer.words ==
        words_of(Answer{.verdict = Verdict::Welcome, .size = 4, .host = 5, .job = 77}));
  CHECK(is_credible("secret", transcript_of(admission, hello), answer_of(answer.words),
                    answer.proof));
  CHECK(admission.missing() == 1);
  CHECK(admission.admit(caller) == 1);
  CHECK(admission.missing() == 2);
}

TEST_CASE("a caller without the secret, or of another job, learns nothing") {
  RankAdmission admission = root();
  Caller caller = admission.enter(at(0s));
  const ProvenAnswer answer = judged(admission, caller, {.rank = 2, .size = 4}, "guess");
  CHECK(answer.verdict == Verdict::Unproven);
  CHECK(answer.words == words_of(Answer{.verdict = Verdict::Unproven}));
  CHECK(answer.proof == Proof{});
  CHECK(admission.turned_away() == "rank 2 of a job of 4 with another secret or job number");
  admission.leave(caller);
  // Rank 1 knows the job's number when others call it.
  RankAdmission peer("secret", 8);
  peer.open({.rank = 1, .first = 2, .size = 4, .known_job = 77}, {.size = 4, .job = 77});
  caller = peer.enter(at(0s));
  Transcript transcript = transcript_of(peer, {.rank = 2, .size = 4});
  transcript.job = 78;
  const Proof proof = caller_proof("secret", transcript);
  CHECK(peer.judge(caller, transcript_of(peer, {.rank = 2, .size = 4}), proof).verdict ==
        Verdict::Unproven);
}

TEST_CASE("a caller that proves itself is told why it is turned away, and the job's size") {
  struct Wrong {
    Hello hello;
    Verdict verdict;
    std::string told;
  };
  for (const Wrong& wrong :
       {Wrong{{.rank = 1, .size = 3}, Verdict::OtherSize, "rank 1 of a job of 3"},
        Wrong{{.rank = 0, .size = 4}, Verdict::NoSuchRank, "rank 0 of a job of 4"},
        Wrong{{.rank = 4, .size = 4}, Verdict::NoSuchRank, "rank 4 of a job of 4"},
        Wrong{
            {.rank = 1, .size = 4, .port = 0x1'0000}, Verdict::NoSuchRank, "rank 1 of a job of 4"},
        // The low 32 bits are those of rank 1.
        Wrong{{.rank = 0x1'0000'0001, .size = 4},
              Verdict::NoSuchRank,
              "rank 4294967297 of a job of 4"},
        Wrong{{.rank = 3, .size = 4}, Verdict::Taken, "rank 3 of a job of 4"}}) {
    INFO(wrong.told);
    RankAdmission admission = root();
    let_in(admission, 3);
    const Caller caller = admission.enter(at(0s));
    const ProvenAnswer answer = judged(admission, caller, wrong.hello);
    CHECK(answer.words == words_of(Answer{.verdict = wrong.verdict, .size = 4}));
    CHECK(is_credible("secret", transcript_of(admission, wrong.hello), answer_of(answer.words),
                      answer.proof));
    CHECK(admission.turned_away() == wrong.told);
    admission.leave(caller);
    CHECK(admission.missing() == 1);
  }
}

TEST_CASE("a rank without a port is none") {
  RankAdmission admission = root();
  Transcript transcript = admission.new_transcript();
  transcript.hello = words_of(Hello{.rank = 1, .size = 4, .port = 0});
  CHECK(admission.judge(admission.enter(at(0s)), transcript, caller_proof("secret", transcript))
            .verdict == Verdict::NoSuchRank);
}

TEST_CASE("a rank that goes before it is admitted, or before all have come, may call again") {
  RankAdmission admission = root();
  const Caller first = admission.enter(at(0s));
  CHECK(judged(admission, first, {.rank = 1, .size = 4}).verdict == Verdict::Welcome);
  const Caller second = admission.enter(at(0s));
  CHECK(judged(admission, second, {.rank = 1, .size = 4}).verdict == Verdict::Taken);
  // That another one of its number goes does not concern the first.
  admission.leave(second);
  CHECK(judged(admission, admission.enter(at(0s)), {.rank = 1, .size = 4}).verdict ==
        Verdict::Taken);
  admission.leave(first);
  admission.leave(first);
  let_in(admission, 1);
  CHECK(admission.missing() == 2);
  admission.forget(1);
  CHECK(admission.missing() == 1);
  let_in(admission, 1);
  CHECK(admission.missing() == 2);
}

TEST_CASE("the oldest unproven caller makes room for a new one, and a proven one stays") {
  RankAdmission admission = root(2);
  CHECK_FALSE(admission.oldest_unproven());
  const Caller proven = admission.enter(at(0s));
  CHECK(judged(admission, proven, {.rank = 1, .size = 4}).verdict == Verdict::Welcome);
  const Caller older = admission.enter(at(1s));
  CHECK_FALSE(admission.next_to_evict());
  CHECK(admission.oldest_unproven() == older);
  const Caller younger = admission.enter(at(2s));
  CHECK(admission.next_to_evict() == older);
  admission.leave(older);
  CHECK_FALSE(admission.next_to_evict());
  CHECK(admission.oldest_unproven() == younger);
  // One that has tried in vain is as unproven as before.
  judged(admission, younger, {.rank = 2, .size = 4}, "guess");
  CHECK(admission.oldest_unproven() == younger);
}

TEST_CASE("a caller has five seconds to be admitted, proven or not") {
  RankAdmission admission = root();
  CHECK_FALSE(admission.next_deadline());
  const Caller silent = admission.enter(at(0s));
  const Caller slow = admission.enter(at(1s));
  const Caller quick = admission.enter(at(1s));
  CHECK(judged(admission, slow, {.rank = 1, .size = 4}).verdict == Verdict::Welcome);
  CHECK(judged(admission, quick, {.rank = 2, .size = 4}).verdict == Verdict::Welcome);
  CHECK(admission.next_deadline() == at(5s));
  CHECK(admission.overdue(at(5s - 1ns)).empty());
  CHECK(admission.overdue(at(5s)) == std::vector{silent});
  admission.admit(quick);
  CHECK(admission.overdue(at(6s)) == std::vector{silent, slow});
  admission.leave(silent);
  CHECK(admission.next_deadline() == at(6s));
  admission.leave(slow);
  CHECK_FALSE(admission.next_deadline());
  CHECK(admission.overdue(at(1h)).empty());
  // An admitted rank waits for the others as long as it takes.
  CHECK(admission.missing() == 1);
}

TEST_CASE("a rank calls those before it: the last one expects nobody") {
  RankAdmission admission("", 8);
  admission.open({.rank = 3, .first = 4, .size = 4}, {.size = 4});
  CHECK(admission.is_complete());
}

}  // namespace
}  // namespace dapple::exec
