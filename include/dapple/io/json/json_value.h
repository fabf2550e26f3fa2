// A parsed JSON document. Object members keep the order of the file, repeated keys are kept, and
// decimal numbers keep their digits, so that readers can be strict about all of these.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dapple::io {

struct JsonValue {
  enum class Kind : std::uint8_t { Null, Boolean, Integer, Decimal, Text, Array, Object };

  Kind kind = Kind::Null;
  bool boolean = false;
  /// The position among all values of the document.
  std::int32_t ordinal = 0;
  /// The value of an Integer.
  std::int64_t integer = 0;
  /// The value of a Text, or the digits of a Decimal. An integer beyond 64 bits is a Decimal.
  std::string text{};
  /// The keys of an Object, one per element.
  std::vector<std::string> keys{};
  /// The elements of an Array or Object.
  std::vector<JsonValue> elements{};
};

/// The largest depth to which containers may be nested.
inline constexpr std::size_t kMaxDepth = 64;
/// The largest number of values in a document.
inline constexpr std::int32_t kMaxValues = 5'000'000;

/// Parses a whole document (RFC 8259). Throws Error(BadInput) with the line and column of the first
/// syntax error, which includes text that is not UTF-8, text after the document, and numbers beyond
/// the range of a double. Throws it without a position if there are more levels or values than
/// kMaxDepth and kMaxValues allow. O(text).
JsonValue parse_json(std::string_view text, const std::string& source_name);

/// Returns the value on one line, with the keys of objects sorted and numbers in a canonical form:
/// the same text for documents that differ in white space, key order and number notation only.
std::string canonical_text(const JsonValue& value);

/// Returns the text of the top-level key "schema" of a document, or an empty text. It stops reading
/// once the key is found.
std::string find_schema(std::string_view text);

}  // namespace dapple::io
