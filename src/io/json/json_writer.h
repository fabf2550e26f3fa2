// Writes JSON in a fixed layout: two blanks of indentation per level, and containers opened with
// Layout::Line on one line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dapple/core/text_source.h"

namespace dapple::io {

/// Returns `text` as a JSON string, quoted and escaped. Bytes that are not UTF-8 become U+FFFD.
std::string json_string(std::string_view text);

/// Returns `text` for use in a one-line message: hidden characters (core/characters.h) are escaped,
/// and bytes that are not UTF-8 become U+FFFD.
std::string printable(std::string_view text);

/// Returns `text` for use in a message: printable, in quotes, truncated after 80 characters.
std::string quoted(std::string_view text);

/// Writes a document element by element. Callers open and close containers, and write the key of
/// each object member before its value.
class JsonWriter {
 public:
  /// The treatment of hidden characters (core/characters.h) in texts. They are kept in documents
  /// that are hashed.
  enum class Hidden { Kept, Escaped };

  /// Creates a writer that keeps the whole document until finish().
  explicit JsonWriter(Hidden hidden = Hidden::Kept) : hidden_(hidden) {}
  /// Creates a writer that passes the document to `sink` in pieces; finish() passes the last one.
  JsonWriter(Hidden hidden, TextSink sink) : hidden_(hidden), sink_(std::move(sink)) {}

  enum class Layout {
    // Each element is on a line of its own.
    Lines,
    // The whole container, including nested ones, is on one line.
    Line,
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
  /// Writes a value that is JSON text already.
  JsonWriter& raw(std::string_view json);

  /// Writes an array of texts, each on its own line, or "[]" if there are none.
  JsonWriter& texts(const std::vector<std::string>& values);

  /// Returns the document with a final line feed, or an empty text if it was passed to a sink.
  /// Requires: all containers are closed.
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
