#include "io/json/json_writer.h"

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "dapple/core/characters.h"
#include "dapple/core/error.h"
#include "io/json/number_text.h"

namespace dapple::io {
namespace {

bool is_plain(std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f || c == '"' || c == '\\') return false;
  }
  return true;
}

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

/// Returns JSON's short escape sequence of a character, or null if it has none.
const char* short_escape(char32_t code) {
  switch (code) {
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return nullptr;
  }
}

}  // namespace

std::string json_string(std::string_view text) {
  if (is_plain(text)) return fmt::format("\"{}\"", text);
  return nlohmann::json(std::string(text))
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const Character character = first_character(text);
    const std::string_view bytes = text.substr(0, character.length);
    text.remove_prefix(character.length);
    if (!character.is_valid) {
      result += "\xEF\xBF\xBD";
    } else if (const char* escape = short_escape(character.code); escape != nullptr) {
      result += escape;
    } else if (!is_hidden(character.code)) {
      result += bytes;
    } else if (character.code > 0xFFFF) {
      result += fmt::format("\\u{{{:x}}}", static_cast<std::uint32_t>(character.code));
    } else {
      result += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(character.code));
    }
  }
  return result;
}

std::string quoted(std::string_view text) {
  constexpr std::size_t kMaxShown = 80;
  std::size_t end = 0;
  for (std::size_t characters = 0; end < text.size() && characters < kMaxShown; ++characters) {
    ++end;
    while (end < text.size() && is_continuation(text[end])) ++end;
  }
  return fmt::format("\"{}{}\"", printable(text.substr(0, end)), end < text.size() ? "..." : "");
}

std::string JsonWriter::written(std::string_view text) const {
  std::string json = json_string(text);
  if (hidden_ == Hidden::Escaped && !is_plain(text)) return with_hidden_escaped(json);
  return json;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  text_ += written(name);
  text_ += ": ";
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::open(char opener, Layout layout) {
  separate();
  text_ += opener;
  const bool inside_line = !open_.empty() && open_.back().on_one_line;
  open_.push_back({.closer = opener == '{' ? '}' : ']',
                   .on_one_line = inside_line || layout == Layout::Line,
                   .is_empty = true});
  return *this;
}

JsonWriter& JsonWriter::close() {
  check(!open_.empty() && !after_key_, "a JSON container is closed that is not open");
  const Open closed = open_.back();
  open_.pop_back();
  if (!closed.on_one_line && !closed.is_empty) break_line();
  text_ += closed.closer;
  if (sink_ && text_.size() >= kTextPiece) {
    sink_(text_);
    text_.clear();
  }
  return *this;
}

JsonWriter& JsonWriter::integer(std::int64_t value) {
  return raw(fmt::format("{}", value));
}

JsonWriter& JsonWriter::number(double value) {
  return raw(write_number(value));
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  separate();
  text_ += json;
  return *this;
}

JsonWriter& JsonWriter::texts(const std::vector<std::string>& values) {
  open_array(Layout::Lines);
  for (const std::string& value : values) text(value);
  return close();
}

std::string JsonWriter::finish() {
  check(open_.empty(), "a JSON container is left open");
  text_ += '\n';
  if (sink_) {
    sink_(text_);
    text_.clear();
  }
  return std::move(text_);
}

void JsonWriter::separate() {
  if (std::exchange(after_key_, false) || open_.empty()) return;
  Open& container = open_.back();
  if (!std::exchange(container.is_empty, false)) {
    text_ += ',';
    if (container.on_one_line) text_ += ' ';
  }
  if (!container.on_one_line) break_line();
}

void JsonWriter::break_line() {
  text_ += '\n';
  text_.append(2 * open_.size(), ' ');
}

}  // namespace dapple::io
