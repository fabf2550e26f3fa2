#include "dapple/exec/ranks/tcp/tcp_proof.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <span>
#include <vector>

#include "dapple/core/error.h"

namespace dapple::exec {
namespace {

/// The side that makes a proof; included in it, so that a proof cannot be sent back to the one who
/// made it.
enum class Side : Word { Caller = 1, Called };

/// The words that a proof authenticates.
class ProofInput {
 public:
  ProofInput(Side side, const Transcript& transcript) {
    add(static_cast<Word>(side));
    add(static_cast<Word>(transcript.called));
    add(transcript.job);
    add(transcript.hello);
    add(transcript.challenge);
  }

  void add(Word word) { words_.push_back(word); }
  void add(std::span<const Word> words) { words_.insert(words_.end(), words.begin(), words.end()); }

  Proof proof(const std::string& secret) const {
    Proof proof{};
    unsigned int size = 0;
    const bool is_made =
        HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
             reinterpret_cast<const unsigned char*>(words_.data()), words_.size() * sizeof(Word),
             reinterpret_cast<unsigned char*>(proof.data()), &size) != nullptr;
    check(is_made && size == sizeof proof, "HMAC-SHA256 is not available");
    return proof;
  }

 private:
  std::vector<Word> words_;
};

}  // namespace

Nonce drawn_nonce() {
  Nonce nonce{};
  if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), sizeof nonce) != 1) {
    throw Error(ErrorKind::Environment, "",
                {{"", "expected random numbers from the system, got none"}});
  }
  return nonce;
}

Proof caller_proof(const std::string& secret, const Transcript& transcript) {
  return ProofInput(Side::Caller, transcript).proof(secret);
}

Proof answer_proof(const std::string& secret, const Transcript& transcript, const Answer& answer) {
  ProofInput input(Side::Called, transcript);
  input.add(words_of(answer));
  return input.proof(secret);
}

bool is_credible(const std::string& secret, const Transcript& transcript, const Answer& answer,
                 const Proof& proof) {
  return answer.verdict == Verdict::Unproven ||
         is_same(proof, answer_proof(secret, transcript, answer));
}

bool is_same(const Proof& a, const Proof& b) {
  return CRYPTO_memcmp(a.data(), b.data(), sizeof a) == 0;
}

}  // namespace dapple::exec
