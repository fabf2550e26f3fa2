// Tells the formats of other tools' files apart by their content.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "dapple/core/error.h"
#include "dapple/io/json/json_value.h"
#include "interop/text/foreign_json.h"

namespace dapple::interop {

/// Recognizes files of a format: by their text, or by the JSON object that they hold.
template <class Format>
struct Recognizer {
  Format format;
  bool (*text)(std::string_view text) = nullptr;
  bool (*object)(const io::JsonValue& object) = nullptr;
};

/// Returns the format of the first recognizer that recognizes the text. The text is parsed at most
/// once, and only if a recognizer wants an object.
template <class Format, std::size_t Count>
std::optional<Format> recognized(const Recognizer<Format> (&recognizers)[Count],
                                 std::string_view text) {
  std::optional<std::optional<io::JsonValue>> parsed;
  for (const Recognizer<Format>& each : recognizers) {
    if (each.text != nullptr && each.text(text)) return each.format;
    if (each.object == nullptr) continue;
    if (!parsed) parsed = object_in(text);
    if (*parsed && each.object(**parsed)) return each.format;
  }
  return std::nullopt;
}

/// Returns the row of a table that is about the format. Requires: there is one.
template <class Row, std::size_t Count, class Format>
const Row& format_row(const Row (&table)[Count], Format format) {
  for (const Row& row : table) {
    if (row.names.format == format) return row;
  }
  throw Bug("a format that is in no table");
}

}  // namespace dapple::interop
