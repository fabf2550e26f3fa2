// Mutual authentication of two ranks over TCP by a shared secret, of which nothing is sent. Each
// side draws a nonce and answers the other's nonce with a keyed digest (HMAC-SHA256, RFC 2104) of
// everything that both have said so far and of the rank that the caller means. So a proof is valid
// only for this one exchange between these two ranks.
#pragma once

#include <string>

#include "dapple/exec/ranks/tcp/handshake.h"

namespace dapple::exec {

/// Returns an unpredictable number that does not repeat. Throws Error(Environment) if the system
/// provides no random numbers.
Nonce drawn_nonce();

/// What both proofs of an exchange authenticate: the words of both sides and their context.
struct Transcript {
  // The rank that the caller means.
  int called = 0;
  // The job's number, as both know it; 0 when rank 0 is called, which tells it only in its answer.
  Word job = 0;
  HelloWords hello{};
  ChallengeWords challenge{};
};

/// Returns the caller's proof. An empty secret is known to everybody.
Proof caller_proof(const std::string& secret, const Transcript& transcript);
/// Returns the proof of the called rank, which also authenticates its answer.
Proof answer_proof(const std::string& secret, const Transcript& transcript, const Answer& answer);

/// Whether the caller may believe an answer: either it is proven, or it says that the caller has
/// proven nothing, which a side that does not share the secret cannot prove.
bool is_credible(const std::string& secret, const Transcript& transcript, const Answer& answer,
                 const Proof& proof);

/// Compares two proofs in constant time.
bool is_same(const Proof& a, const Proof& b);

}  // namespace dapple::exec
