// The last way of words to a person: whatever a message, a table or a line of a log was made of,
// nothing hidden leaves here.
#pragma once

#include <mutex>
#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>

namespace dapple::command_line {

/// Hands on to another buffer what is_hidden() and bytes that are no UTF-8 as '?', all but line
/// breaks and tabs. Where the terminal is painted on, also colours and what clears a line (ESC [
/// ... m or K, carriage return): foreign text has none any more when it comes together with these.
/// Threads may write at the same time.
class SafeBuffer : public std::streambuf {
 public:
  SafeBuffer(std::streambuf& target, bool paints) : target_(target), paints_(paints) {}

 protected:
  int_type overflow(int_type c) override;
  std::streamsize xsputn(const char* text, std::streamsize count) override;
  /// A character of which a part is missing is none.
  int sync() override;

 private:
  bool pass(bool is_end);
  std::size_t length_of_own(std::string_view text) const;

  std::streambuf& target_;
  const bool paints_;
  std::mutex turns_;
  std::string kept_;  // what came and may be only a part of a character
};

/// A stream over such a buffer, flushed at each word where the target's stream is.
class SafeStream : public std::ostream {
 public:
  SafeStream(std::ostream& target, bool paints);

 private:
  SafeBuffer buffer_;
};

}  // namespace dapple::command_line
