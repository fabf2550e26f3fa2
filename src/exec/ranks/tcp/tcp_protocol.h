// The protocol of ranks over TCP, as words in native byte order. It starts with a handshake, in
// which both sides verify that they use the same protocol and prove their identity (tcp_proof.h).
// Then frame headers follow, each with the bytes that it announces.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "dapple/exec/message/fingerprint.h"
#include "dapple/exec/ranks/rank_wire.h"
#include "exec/message/announced.h"

namespace dapple::exec {

using Word = std::uint64_t;

// "dapple-r" in little-endian order.
inline constexpr Word kMagic = 0x72'2D'65'6C'70'70'61'64;
inline constexpr Word kOrder = 0x01'02'03'04'05'06'07'08;
inline constexpr Word kProtocolVersion = 2;

/// Returns the checksum of all words but the last one, which holds it.
template <std::size_t kWords>
Word seal_of(const std::array<Word, kWords>& words) {
  return fingerprint(std::as_bytes(std::span(words).template first<kWords - 1>()));
}

template <std::size_t kWords>
std::array<Word, kWords> sealed(std::array<Word, kWords> words) {
  words.back() = seal_of(words);
  return words;
}

template <std::size_t kWords>
bool is_whole(const std::array<Word, kWords>& words) {
  return words.back() == seal_of(words);
}

/// Whether the sender is a rank at all, of whatever protocol version and byte order. In all
/// versions the first three words identify them.
inline bool is_rank(std::span<const Word> words) {
  const auto turned = [](Word word) {
    Word result = 0;
    for (int i = 0; i < 8; ++i) result = result << 8 | (word >> 8 * i & 0xFF);
    return result;
  };
  return words[0] == kMagic || words[0] == turned(kMagic);
}

inline bool has_own_protocol(std::span<const Word> words) {
  return words[0] == kMagic && words[1] == kOrder && words[2] == kProtocolVersion;
}

using Nonce = std::array<Word, 4>;
using Proof = std::array<Word, 4>;

/// The handshake has four parts: the caller identifies itself, is challenged to prove its identity,
/// does so, and receives an answer. All parts have a fixed size, except the one from a caller of
/// another version.
using HelloWords = std::array<Word, 11>;
using ChallengeWords = std::array<Word, 8>;
using AnswerWords = std::array<Word, 4>;

inline constexpr std::size_t kProtocolWords = 3;

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

enum class Verdict : Word { Welcome = 1, Unproven, OtherSize, NoSuchRank, Taken };

/// The final answer to the caller. One that is turned away learns nothing about the host and the
/// job, and one that has proven nothing learns nothing but that.
struct Answer {
  Verdict verdict = Verdict::Welcome;
  Word size = 0;
  Word host = 0;
  Word job = 0;
};

inline AnswerWords words_of(const Answer& answer) {
  return {static_cast<Word>(answer.verdict), answer.size, answer.host, answer.job};
}

inline Answer answer_of(const AnswerWords& words) {
  return {.verdict = static_cast<Verdict>(words[0]),
          .size = words[1],
          .host = words[2],
          .job = words[3]};
}

/// The kind of a frame header.
enum class HeaderKind : Word {
  // Describes a message, whose pieces follow.
  Frame = 1,
  // Is followed by bytes of the message.
  Piece,
  Notice,
  // The last header that has to be heeded.
  Leaving,
  // Is followed by the peer table; from rank 0 to the other ranks.
  Ranks,
};

using FrameHeader = std::array<Word, 9>;

inline HeaderKind kind_of(const FrameHeader& header) {
  return static_cast<HeaderKind>(header[0]);
}

inline FrameHeader header_of(HeaderKind kind, std::size_t size = 0) {
  return sealed(FrameHeader{static_cast<Word>(kind), size});
}

/// Returns the size of the bytes after the header of a piece or of the peer table.
inline std::size_t size_of(const FrameHeader& header) {
  return header[1];
}

inline FrameHeader header_of(const Frame& frame) {
  const auto pair = [](std::int32_t high, std::int32_t low) {
    return static_cast<Word>(static_cast<std::uint32_t>(high)) << 32 |
           static_cast<std::uint32_t>(low);
  };
  return sealed(FrameHeader{
      static_cast<Word>(HeaderKind::Frame), static_cast<Word>(frame.key.iteration),
      AnnouncedAction::packed(frame.key.action), pair(frame.key.from.value, frame.key.to.value),
      pair(frame.key.step, frame.waits_for_word ? 1 : 0), frame.size, frame.fingerprint,
      frame.number});
}

/// Returns nothing if the action is invalid.
inline std::optional<Frame> frame_of(const FrameHeader& words, int from) {
  const std::optional<Action> action = AnnouncedAction::unpacked(words[2]);
  if (!action) return std::nullopt;
  const auto high = [](Word word) { return static_cast<std::int32_t>(word >> 32); };
  const auto low = [](Word word) { return static_cast<std::int32_t>(word & 0xFFFFFFFF); };
  return Frame{.key = {.iteration = static_cast<std::int64_t>(words[1]),
                       .action = *action,
                       .step = high(words[4]),
                       .from = {high(words[3])},
                       .to = {low(words[3])}},
               .size = words[5],
               .fingerprint = words[6],
               .number = words[7],
               .from = from,
               .waits_for_word = low(words[4]) != 0};
}

inline FrameHeader header_of(const Notice& notice) {
  return sealed(FrameHeader{static_cast<Word>(HeaderKind::Notice), static_cast<Word>(notice.kind),
                            static_cast<Word>(notice.moment), notice.number, notice.action});
}

/// Returns nothing if the notice is invalid.
inline std::optional<Notice> notice_of(const FrameHeader& words, int from) {
  if (words[1] > static_cast<Word>(NoticeKind::Failed)) return std::nullopt;
  if (words[4] != 0 && !AnnouncedAction::unpacked(words[4])) return std::nullopt;
  return Notice{.kind = static_cast<NoticeKind>(words[1]),
                .from = from,
                .moment = static_cast<std::int64_t>(words[2]),
                .number = words[3],
                .action = words[4]};
}

}  // namespace dapple::exec
