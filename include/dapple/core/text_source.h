// A text that is written piece by piece, so that a long one never stands in memory as a whole.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace dapple {

/// Takes the next piece of a text. It may throw, which ends the writing.
using TextSink = std::function<void(std::string_view piece)>;

/// Hands a text to a sink in pieces of about kTextPiece bytes; each call writes the same text. What
/// the text is made from must outlive the source.
using TextSource = std::function<void(const TextSink& sink)>;

/// Large enough that handing on costs nothing beside the writing, and small enough that a signal is
/// heard soon.
inline constexpr std::size_t kTextPiece = std::size_t{1} << 20;

/// A source that keeps the whole text in memory.
inline TextSource source_of(std::string text) {
  return [text = std::move(text)](const TextSink& sink) { sink(text); };
}

/// The whole text, for one that is known to be short.
inline std::string whole_text(const TextSource& source) {
  std::string text;
  source([&text](std::string_view piece) { text += piece; });
  return text;
}

}  // namespace dapple
