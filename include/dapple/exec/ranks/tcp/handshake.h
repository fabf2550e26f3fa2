// The handshake of two ranks over TCP, as words in native byte order: the caller identifies itself,
// is challenged to prove its identity, does so (tcp_proof.h), and receives an answer. All parts
// have a fixed size, except the one from a caller of another version.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace dapple::exec {

using Word = std::uint64_t;

// "dapple-r" in little-endian order.
inline constexpr Word kMagic = 0x72'2D'65'6C'70'70'61'64;
inline constexpr Word kOrder = 0x01'02'03'04'05'06'07'08;
inline constexpr Word kProtocolVersion = 2;

/// Whether the sender is a rank at all, of whatever protocol version and byte order. Requires:
/// there are kProtocolWords words.
inline bool is_rank(std::span<const Word> words) {
  const auto turned = [](Word word) {
    Word result = 0;
    for (int i = 0; i < 8; ++i) result = result << 8 | (word >> 8 * i & 0xFF);
    return result;
  };
  return words[0] == kMagic || words[0] == turned(kMagic);
}

/// Whether the sender has this program's protocol version and byte order.
inline bool has_own_protocol(std::span<const Word> words) {
  return words[0] == kMagic && words[1] == kOrder && words[2] == kProtocolVersion;
}

using Nonce = std::array<Word, 4>;
using Proof = std::array<Word, 4>;

// The parts of the handshake, each followed by the next one; the caller's proof is sent after the
// challenge, and the called rank's after its answer.
using HelloWords = std::array<Word, 11>;
using ChallengeWords = std::array<Word, 8>;
using AnswerWords = std::array<Word, 4>;

/// The first words of both sides, which have the same meaning in all versions.
inline constexpr std::size_t kProtocolWords = 3;

inline constexpr Word kLastPort = 0xFFFF;

/// The first words of a calling rank; not trustworthy before it has proven its identity.
struct Hello {
  Word rank = 0;
  Word size = 0;
  // The port on which it listens.
  Word port = 0;
  // Identifies its host; 0 if unknown, and then equal to no other host.
  Word host = 0;
  Nonce nonce{};
};

/// Returns the words with which a rank calls another one.
inline HelloWords words_of(const Hello& hello) {
  return {kMagic,     kOrder,         kProtocolVersion, hello.rank,     hello.size,    hello.port,
          hello.host, hello.nonce[0], hello.nonce[1],   hello.nonce[2], hello.nonce[3]};
}

/// Requires: has_own_protocol(words).
inline Hello hello_of(const HelloWords& words) {
  return {.rank = words[3],
          .size = words[4],
          .port = words[5],
          .host = words[6],
          .nonce = {words[7], words[8], words[9], words[10]}};
}

/// Returns the challenge, sent to a caller of any version; one of another version reads no further
/// than the first words.
inline ChallengeWords challenge_of(const Nonce& nonce) {
  return {kMagic, kOrder, kProtocolVersion, 0, nonce[0], nonce[1], nonce[2], nonce[3]};
}

/// What the called rank makes of the caller: it is welcome, or the reason for which it is turned
/// away. `Taken` means that there already is a rank of its number.
enum class Verdict : Word { Welcome = 1, Unproven, OtherSize, NoSuchRank, Taken };

/// The final answer to the caller. One that is turned away learns nothing about the host and the
/// job, and one that has proven nothing learns nothing but that.
struct Answer {
  Verdict verdict = Verdict::Welcome;
  Word size = 0;
  Word host = 0;
  // A number that rank 0 has drawn at random, which identifies the job.
  Word job = 0;
};

/// Returns the words of the answer, which its proof authenticates.
inline AnswerWords words_of(const Answer& answer) {
  return {static_cast<Word>(answer.verdict), answer.size, answer.host, answer.job};
}

inline Answer answer_of(const AnswerWords& words) {
  return {.verdict = static_cast<Verdict>(words[0]),
          .size = words[1],
          .host = words[2],
          .job = words[3]};
}

}  // namespace dapple::exec
