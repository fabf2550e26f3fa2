// Strict reading of a parsed document. Every violation is recorded with its JSON pointer, reading
// continues with a substitute value, and all violations are thrown together, in document order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/core/quantity.h"
#include "dapple/io/json/json_value.h"

namespace dapple::io {

/// The violations found so far in one document.
class Violations {
 public:
  explicit Violations(std::string source_name) : source_name_(std::move(source_name)) {}

  /// Records a violation. `ordinal` is that of the value, or of its object if the value is missing.
  void add(std::int32_t ordinal, std::string place, std::string message);

  const std::string& source_name() const { return source_name_; }
  bool empty() const { return count_ == 0; }
  std::size_t count() const { return count_; }

  /// Throws Error(BadInput) if there are any violations; it lists the first 100 and states how many
  /// more there are.
  void throw_if_any();

 private:
  struct Entry {
    std::int32_t ordinal = 0;
    std::string place;
    std::string message;
  };
  std::string source_name_;
  std::vector<Entry> entries_;
  std::size_t count_ = 0;
};

/// The JSON pointer of an element, whose text is assembled only when it is needed. The texts that
/// it refers to must stay alive.
struct Place {
  static constexpr std::size_t kNoIndex = static_cast<std::size_t>(-1);

  std::string_view parent{};
  std::string_view key{};
  std::size_t index = kNoIndex;
  bool is_root = false;

  std::string text() const;
};

/// A value of the document, which may be missing, and its place. Refers to the document, to the
/// reader that created it, and to the violations.
class Field {
 public:
  Field(const JsonValue* value, Place place, std::int32_t ordinal, Violations* violations)
      : value_(value), place_(place), ordinal_(ordinal), violations_(violations) {}
  static Field root(const JsonValue& document, Violations& violations);

  bool present() const { return value_ != nullptr; }
  /// Requires: present().
  const JsonValue& value() const { return *value_; }
  /// Returns the value, or null if it is missing or of another kind.
  const JsonValue* value_of_kind(JsonValue::Kind kind) const;
  std::string place() const { return place_.text(); }
  std::int32_t ordinal() const { return ordinal_; }
  Violations* violations() const { return violations_; }

  /// Records "expected <what>, got <value>", or that the key is missing.
  void refuse(std::string_view what) const;
  /// Records a violation with the given message.
  void add(std::string message) const;
  /// Records violations that another module found in the data read from this field.
  void add_all(const std::vector<Violation>& found) const;

 private:
  const JsonValue* value_;
  Place place_;
  std::int32_t ordinal_;
  // Null inside a value that was already rejected.
  Violations* violations_;
};

/// Reads an object key by key. The constructor records a violation if the field is not an object.
class ObjectReader {
 public:
  explicit ObjectReader(const Field& field);
  ObjectReader(const ObjectReader&) = delete;
  ObjectReader& operator=(const ObjectReader&) = delete;

  bool valid() const { return object_ != nullptr; }
  /// Returns the member of that name, which may be missing. Requires: `key` is a literal.
  Field field(std::string_view key);
  /// Returns every member, whatever its key. The keys are value().keys of the object's field.
  std::vector<Field> members();
  /// Records a violation for each of the keys, which are reserved for later versions, that is
  /// present.
  void refuse_reserved(std::initializer_list<std::string_view> keys);
  /// Records keys that were not requested and keys that occur more than once. Readers of other
  /// tools' files, which may contain other keys, do not call it.
  void finish();

 private:
  void report_repeated_keys() const;

  const JsonValue* object_;
  std::string place_;
  std::int32_t ordinal_;
  Violations* violations_;
  std::vector<std::string_view> known_;
  std::vector<std::string_view> reserved_;
  bool takes_any_key_ = false;
};

/// Reads an array element by element.
class ArrayReader {
 public:
  /// Records a violation, which states that `what` was expected, if the field is not an array.
  ArrayReader(const Field& field, std::string_view what);
  ArrayReader(const ArrayReader&) = delete;
  ArrayReader& operator=(const ArrayReader&) = delete;

  std::size_t size() const { return array_ == nullptr ? 0 : array_->elements.size(); }
  bool valid() const { return array_ != nullptr; }
  Field at(std::size_t index) const;

 private:
  const JsonValue* array_;
  std::string place_;
  Violations* violations_;
};

struct IntegerRange {
  std::int64_t least = 0;
  std::int64_t most = kMaxCount;
};
inline constexpr IntegerRange kSampleRange{1, 2'147'483'647};

struct FactorRange {
  Factor least{0};
  Factor most{1'000'000'000'000};
};

struct NumberRange {
  double least = 0;
  double most = 1e15;
};

// Each of these records a violation and returns nothing if the field is missing or not as expected.
std::optional<std::int64_t> read_integer(const Field& field, IntegerRange range);
std::optional<Factor> read_factor(const Field& field, FactorRange range);
std::optional<double> read_number(const Field& field, NumberRange range);
std::optional<bool> read_boolean(const Field& field);
/// Reads 1 to 200 characters without control characters.
std::optional<std::string> read_name(const Field& field);
/// Reads up to 10,000 characters without control characters other than line feed and tab.
std::optional<std::string> read_text(const Field& field);
/// Reads an array of texts; a violation is recorded for each invalid one, which is skipped.
std::vector<std::string> read_texts(const Field& field);
/// Reads a SHA-256 in lower-case hexadecimal.
std::optional<std::string> read_hash(const Field& field);
/// Returns the position of the text among `choices`.
std::optional<std::size_t> read_choice(const Field& field,
                                       const std::vector<std::string_view>& choices);

/// Returns read(field), or nothing, without a violation, if the value is null.
template <class Value, class Read>
std::optional<Value> read_nullable(const Field& field, const Read& read) {
  if (field.value_of_kind(JsonValue::Kind::Null) != nullptr) return std::nullopt;
  return read(field);
}

/// Whether the key of a member is a valid name; records a violation if it is not.
bool is_name(const Field& member, std::string_view key);

/// Reads an integer as read_integer() does, and returns range.least after a violation.
std::int64_t required_integer(const Field& field, IntegerRange range);
/// Reads an integer if the field is present, and returns `otherwise` if it is missing or invalid.
std::int64_t optional_integer(const Field& field, IntegerRange range, std::int64_t otherwise);
/// Reads a text if the field is present, and returns an empty one if it is missing or invalid.
std::string optional_text(const Field& field);

/// Checks the key "schema" of a document. Returns false and records a violation if it is not
/// `expected`; returns false if the document is not an object.
bool check_schema(ObjectReader& document, std::string_view expected);

/// Parses a document and returns the result of `read`. Throws Error(BadInput) with the syntax
/// error, or with all violations that `read` records.
template <class Document, class Read>
Document read_document(std::string_view text, const std::string& source_name, const Read& read) {
  const JsonValue json = parse_json(text, source_name);
  Violations violations(source_name);
  Document document = read(Field::root(json, violations));
  violations.throw_if_any();
  return document;
}

}  // namespace dapple::io
