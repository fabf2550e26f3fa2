#include "dapple/exec/ranks/tcp/tcp_proof.h"

#include <catch2/catch.hpp>
#include <functional>
#include <utility>
#include <vector>

namespace dapple::exec {
namespace {

Transcript transcript() {
  return {.called = 1,
          .job = 77,
          .hello = words_of(Hello{.rank = 2, .size = 3, .port = 29'500, .nonce = {1, 2, 3, 4}}),
          .challenge = challenge_of({5, 6, 7, 8})};
}

TEST_CASE("the words of a handshake say what they were made of") {
  const Hello hello =
      hello_of(words_of(Hello{.rank = 2, .size = 3, .port = 4, .host = 5, .nonce = {6, 7, 8, 9}}));
  CHECK(hello.rank == 2);
  CHECK(hello.size == 3);
  CHECK(hello.port == 4);
  CHECK(hello.host == 5);
  CHECK(hello.nonce == Nonce{6, 7, 8, 9});
  const Answer answer =
      answer_of(words_of(Answer{.verdict = Verdict::Taken, .size = 3, .host = 5, .job = 7}));
  CHECK(answer.verdict == Verdict::Taken);
  CHECK(answer.size == 3);
  CHECK(answer.host == 5);
  CHECK(answer.job == 7);
}

TEST_CASE("a rank is known in any version and byte order, and talked to in its own only") {
  ChallengeWords words = challenge_of({});
  CHECK(is_rank(words));
  CHECK(has_own_protocol(words));
  words[2] = kProtocolVersion + 1;
  CHECK(is_rank(words));
  CHECK_FALSE(has_own_protocol(words));
  // The other byte order turns each word around.
  words = challenge_of({});
  words[0] = 0x64'61'70'70'6C'65'2D'72;
  words[1] = 0x08'07'06'05'04'03'02'01;
  CHECK(is_rank(words));
  CHECK_FALSE(has_own_protocol(words));
  words[0] = 0x2F'31'2E'31'50'54'54'48;  // HTTP/1.1
  CHECK_FALSE(is_rank(words));
}

TEST_CASE("a proof holds for one secret and one handshake") {
  const Proof proof = caller_proof("secret", transcript());
  CHECK(is_same(proof, caller_proof("secret", transcript())));
  CHECK_FALSE(is_same(proof, caller_proof("Secret", transcript())));
  CHECK_FALSE(is_same(proof, caller_proof("", transcript())));
  const std::vector<std::function<void(Transcript&)>> changes{
      [](Transcript& other) { other.called = 0; }, [](Transcript& other) { other.job = 78; },
      [](Transcript& other) { ++other.hello.back(); },
      [](Transcript& other) { ++other.challenge.back(); }};
  for (const auto& change : changes) {
    Transcript other = transcript();
    change(other);
    CHECK_FALSE(is_same(proof, caller_proof("secret", other)));
  }
}

TEST_CASE("a proof cannot be sent back, and the called rank's covers its answer") {
  const Answer welcome{.size = 3, .host = 5, .job = 77};
  const Proof proof = answer_proof("secret", transcript(), welcome);
  CHECK_FALSE(is_same(proof, caller_proof("secret", transcript())));
  CHECK(is_credible("secret", transcript(), welcome, proof));
  CHECK_FALSE(is_credible("other", transcript(), welcome, proof));
  Answer other = welcome;
  other.job = 78;
  CHECK_FALSE(is_credible("secret", transcript(), other, proof));
  other = welcome;
  other.verdict = Verdict::Taken;
  CHECK_FALSE(is_credible("secret", transcript(), other, proof));
}

TEST_CASE("only that a caller has proven nothing needs no proof") {
  for (const auto& [verdict, is_believed] : {std::pair{Verdict::Welcome, false},
                                             {Verdict::Unproven, true},
                                             {Verdict::OtherSize, false},
                                             {Verdict::NoSuchRank, false},
                                             {Verdict::Taken, false}}) {
    CHECK(is_credible("secret", transcript(), {.verdict = verdict}, {}) == is_believed);
  }
}

TEST_CASE("drawn numbers do not repeat") {
  CHECK(drawn_nonce() != drawn_nonce());
}

}  // namespace
}  // namespace dapple::exec
