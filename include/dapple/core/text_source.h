// A text that is produced piece by piece, so that a long one is never in memory as a whole.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace dapple {

/// Receives the next piece of a text. It may throw, which aborts the writing.
using TextSink = std::function<void(std::string_view piece)>;

/// Writes a text to a sink in pieces of about kTextPiece bytes; every call writes the same text.
/// The data from which the text is made must outlive the source.
using TextSource = std::function<void(const TextSink& sink)>;

/// The size of a piece in bytes: large enough that the cost per piece is negligible beside the
/// writing, and small enough that a signal is noticed soon.
inline constexpr std::size_t kTextPiece = std::size_t{1} << 20;

/// Returns a source that keeps the whole text in memory and writes it as one piece.
inline TextSource source_of(std::string text) {
  return [text = std::move(text)](const TextSink& sink) { sink(text); };
}

/// Returns the whole text of a source that is known to be short.
inline std::string whole_text(const TextSource& source) {
  std::string text;
  source([&text](std::string_view piece) { text += piece; });
  return text;
}

}  // namespace dapple
