// How two ranks that meet over TCP prove to each other that they know the same secret, of which
// nothing passes: each draws a number that never comes again, and answers the other's with a keyed
// digest (HMAC-SHA256, RFC 2104) of all that both have said so far and of whom the caller means. So
// a proof is good for this one talk between these two.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "exec/ranks/tcp/tcp_protocol.h"

namespace dapple::exec {

/// Nobody knows it before, and it does not come again. Throws Error(Environment) where the system
/// has none.
Nonce drawn_nonce();

/// What the proofs of a talk are about, beside what the caller and the called one have said.
struct Talk {
  int called = 0;  // rank whom the caller means
  Word job = 0;    // as both know it; 0 of rank 0, who tells it only then
  HelloWords hello{};
  ChallengeWords challenge{};
};

/// The caller's. An empty secret is one that everybody knows.
Proof caller_proof(const std::string& secret, const Talk& talk);
/// Of the one who was called, whose answer it is about.
Proof answer_proof(const std::string& secret, const Talk& talk, const Answer& answer);

/// In a time that does not depend on where they differ.
bool is_same(const Proof& a, const Proof& b);

}  // namespace dapple::exec
