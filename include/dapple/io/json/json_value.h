// A JSON document as it was read: object members in the order of the file, repeated keys kept, and
// numbers with their digits, so that readers can be strict about all of it.
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
  std::int32_t ordinal = 0;         // position among all values of the document
  std::int64_t integer = 0;         // of an Integer
  std::string text{};               // of a Text; the digits of a Decimal or of too large an integer
  std::vector<std::string> keys{};  // of an Object, one per element
  std::vector<JsonValue> elements{};  // of an Array or Object
};

/// Containers may be nested this deep.
inline constexpr std::size_t kMaxDepth = 64;
/// A document may hold this many values.
inline constexpr std::int32_t kMaxValues = 5'000'000;

/// Parses a whole document (RFC 8259). Throws Error(BadInput) with line and column of the first
/// fault of syntax: also for text that is not UTF-8, anything behind the document, numbers beyond a
/// double, and more nesting or values than above. O(text).
JsonValue parse_json(std::string_view text, const std::string& source_name);

/// The value on one line with the keys of objects in alphabetical order and numbers in one form:
/// the same for texts that differ in blanks, order and spelling of numbers only.
std::string canonical_text(const JsonValue& value);

/// Text of `schema` at the top of a document, or empty; stops reading once it is found.
std::string find_schema(std::string_view text);

}  // namespace dapple::io
