// A filter for output that people read: no hidden characters pass, whatever a message, a table or a
// log line contains.
#pragma once

#include <mutex>
#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>

namespace dapple::command_line {

/// Forwards text to another buffer and replaces characters that are is_hidden(), except line breaks
/// and tabs, and invalid UTF-8 by '?'. If `paints`, also passes colours and what clears a line (ESC
/// [ ... m or K, carriage return); foreign text must be free of these before it is combined with
/// them. Several threads may write at the same time.
class SafeBuffer : public std::streambuf {
 public:
  SafeBuffer(std::streambuf& target, bool paints) : target_(target), paints_(paints) {}

 protected:
  int_type overflow(int_type c) override;
  std::streamsize xsputn(const char* text, std::streamsize count) override;
  /// Treats an incomplete character as invalid.
  int sync() override;

 private:
  bool pass(bool is_end);
  std::size_t length_of_own(std::string_view text) const;

  std::streambuf& target_;
  const bool paints_;
  std::mutex turns_;
  std::string kept_;  // received bytes that may be an incomplete character
};

/// A stream over a SafeBuffer; unit-buffered (std::unitbuf) if the target is.
class SafeStream : public std::ostream {
 public:
  SafeStream(std::ostream& target, bool paints);

 private:
  SafeBuffer buffer_;
};

}  // namespace dapple::command_line
