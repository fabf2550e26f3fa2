#include "command_line/safe_stream.h"

#include "dapple/core/characters.h"

namespace dapple::command_line {
namespace {

/// Returns the length in bytes of the escape sequence for a colour, or for clearing a line, with
/// which the text begins; 0 if there is none.
std::size_t escape_length(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  const std::size_t end = text.find_first_not_of("0123456789;", 2);
  const bool is_whole = end != std::string_view::npos && (text[end] == 'm' || text[end] == 'K');
  return is_whole ? end + 1 : 0;
}

/// Whether further bytes could complete the text to a valid character.
bool may_go_on(std::string_view text) {
  constexpr std::size_t kLongest = 4;
  return text.size() < kLongest && static_cast<unsigned char>(text.front()) >= 0xC2 &&
         text.find_first_not_of(
             "\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f"
             "\x90\x91\x92\x93\x94\x95\x96\x97\x98\x99\x9a\x9b\x9c\x9d\x9e\x9f"
             "\xa0\xa1\xa2\xa3\xa4\xa5\xa6\xa7\xa8\xa9\xaa\xab\xac\xad\xae\xaf"
             "\xb0\xb1\xb2\xb3\xb4\xb5\xb6\xb7\xb8\xb9\xba\xbb\xbc\xbd\xbe\xbf",
             1) == std::string_view::npos;
}

}  // namespace

std::size_t SafeBuffer::length_of_own(std::string_view text) const {
  if (text.front() == '\n' || text.front() == '\t') return 1;
  if (!paints_) return 0;
  return text.front() == '\r' ? 1 : escape_length(text);
}

bool SafeBuffer::pass(bool is_end) {
  std::string safe;
  std::string_view rest = kept_;
  while (!rest.empty()) {
    std::size_t length = length_of_own(rest);
    if (length > 0) {
      safe += rest.substr(0, length);
    } else {
      const Character character = first_character(rest);
      if (!character.is_valid && !is_end && may_go_on(rest)) break;
      length = character.length;
      safe += printable(rest.substr(0, length));
    }
    rest.remove_prefix(length);
  }
  kept_.erase(0, kept_.size() - rest.size());
  const auto count = static_cast<std::streamsize>(safe.size());
  return target_.sputn(safe.data(), count) == count;
}

SafeBuffer::int_type SafeBuffer::overflow(int_type c) {
  if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
  const std::lock_guard<std::mutex> lock(turns_);
  kept_ += traits_type::to_char_type(c);
  return pass(false) ? c : traits_type::eof();
}

std::streamsize SafeBuffer::xsputn(const char* text, std::streamsize count) {
  const std::lock_guard<std::mutex> lock(turns_);
  kept_.append(text, static_cast<std::size_t>(count));
  return pass(false) ? count : 0;
}

int SafeBuffer::sync() {
  const std::lock_guard<std::mutex> lock(turns_);
  const bool passed = pass(true);
  return target_.pubsync() == 0 && passed ? 0 : -1;
}

SafeStream::SafeStream(std::ostream& target, bool paints)
    : std::ostream(nullptr), buffer_(*target.rdbuf(), paints) {
  rdbuf(&buffer_);
  if ((target.flags() & std::ios_base::unitbuf) != 0) setf(std::ios_base::unitbuf);
}

}  // namespace dapple::command_line
