// What ranks say to each other over TCP after their handshake, as words in native byte order: frame
// headers, each with the bytes that it announces.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "dapple/exec/message/fingerprint.h"
#include "dapple/exec/ranks/rank_wire.h"
#include "dapple/exec/ranks/tcp/handshake.h"
#include "exec/message/announced.h"

namespace dapple::exec {

/// Returns the checksum of all words but the last one, which holds it.
template <std::size_t kWords>
Word checksum_of(const std::array<Word, kWords>& words) {
  return fingerprint(std::as_bytes(std::span(words).template first<kWords - 1>()));
}

template <std::size_t kWords>
std::array<Word, kWords> with_checksum(std::array<Word, kWords> words) {
  words.back() = checksum_of(words);
  return words;
}

template <std::size_t kWords>
bool has_right_checksum(const std::array<Word, kWords>& words) {
  return words.back() == checksum_of(words);
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
  PeerTable,
};

using FrameHeader = std::array<Word, 9>;

inline HeaderKind kind_of(const FrameHeader& header) {
  return static_cast<HeaderKind>(header[0]);
}

inline FrameHeader header_of(HeaderKind kind, std::size_t size = 0) {
  return with_checksum(FrameHeader{static_cast<Word>(kind), size});
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
  return with_checksum(FrameHeader{
      static_cast<Word>(HeaderKind::Frame), static_cast<Word>(frame.key.iteration),
      AnnouncedAction::packed(frame.key.action), pair(frame.key.from.value, frame.key.to.value),
      pair(frame.key.step, frame.awaits_arrival_time ? 1 : 0), frame.size, frame.fingerprint,
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
               .awaits_arrival_time = low(words[4]) != 0};
}

inline FrameHeader header_of(const Notice& notice) {
  return with_checksum(FrameHeader{static_cast<Word>(HeaderKind::Notice),
                                   static_cast<Word>(notice.kind), static_cast<Word>(notice.moment),
                                   notice.number, notice.action});
}

/// Returns nothing if the notice is invalid.
inline std::optional<Notice> notice_of(const FrameHeader& words, int from) {
  if (words[1] > static_cast<Word>(NoticeKind::Failure)) return std::nullopt;
  if (words[4] != 0 && !AnnouncedAction::unpacked(words[4])) return std::nullopt;
  return Notice{.kind = static_cast<NoticeKind>(words[1]),
                .from = from,
                .moment = static_cast<std::int64_t>(words[2]),
                .number = words[3],
                .action = words[4]};
}

}  // namespace dapple::exec
