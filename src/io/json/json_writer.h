// Writes JSON in one fixed form: two blanks per level, one line for what is opened as a line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dapple/core/text_source.h"

namespace dapple::io {

/// `text` in quotes, escaped. Bytes that are not UTF-8 become U+FFFD.
std::string json_string(std::string_view text);

/// `text` fit for a line of a message: what is hidden (core/characters.h) is escaped, and what is
/// no UTF-8 is U+FFFD.
std::string printable(std::string_view text);

/// `text` for a message: printable, in quotes, cut after 80 characters.
std::string quoted(std::string_view text);

/// Callers open and close, and give each member of an object its key first.
class JsonWriter {
 public:
  /// What becomes of characters in texts that a reader does not see (core/characters.h). They are
  /// kept in documents of which a hash is made.
  enum class Hidden { Kept, Escaped };

  /// Keeps the whole document, for finish().
  explicit JsonWriter(Hidden hidden = Hidden::Kept) : hidden_(hidden) {}
  /// Hands the document on in pieces while it is written; finish() hands on the last one.
  JsonWriter(Hidden hidden, TextSink sink) : hidden_(hidden), sink_(std::move(sink)) {}

  enum class Layout {
    Lines,  // each element on a line of its own
    Line,   // all of it, what it holds included, on one line
  };

  JsonWriter& key(std::string_view name);
  JsonWriter& open_object(Layout layout) { return open('{', layout); }
  JsonWriter& open_array(Layout layout) { return open('[', layout); }
  JsonWriter& close();

  JsonWriter& text(std::string_view value) { return raw(written(value)); }
  JsonWriter& integer(std::int64_t value);
  JsonWriter& number(double value);
  JsonWriter& boolean(bool value) { return raw(value ? "true" : "false"); }
  JsonWriter& null() { return raw("null"); }
  /// `json` is a value already written.
  JsonWriter& raw(std::string_view json);

  /// A list of texts, a line each, or "[]".
  JsonWriter& texts(const std::vector<std::string>& values);

  /// The document, with a line break at its end, or nothing where a sink has it. Requires:
  /// everything is closed.
  std::string finish();

 private:
  struct Open {
    char closer = '}';
    bool on_one_line = false;
    bool is_empty = true;
  };

  JsonWriter& open(char opener, Layout layout);
  void separate();
  void break_line();

  std::string written(std::string_view text) const;

  Hidden hidden_ = Hidden::Kept;
  TextSink sink_;
  std::string text_;
  std::vector<Open> open_;
  bool after_key_ = false;
};

}  // namespace dapple::io
