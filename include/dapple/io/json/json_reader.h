// Strict reading of a parsed document: every fault is recorded with its JSON pointer, reading goes
// on with a stand-in value, and all faults are thrown together, in the order of the document.
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

/// Faults found so far in one document.
class Violations {
 public:
  explicit Violations(std::string source_name) : source_name_(std::move(source_name)) {}

  /// `ordinal` is that of the value at fault (of its object, if it is missing).
  void add(std::int32_t ordinal, std::string place, std::string message);

  const std::string& source_name() const { return source_name_; }
  bool empty() const { return count_ == 0; }
  std::size_t count() const { return count_; }

  /// Throws Error(BadInput) if there is any; of very many the first ones and how many more.
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

/// JSON pointer of an element, put together only when it is shown. `parent` must stay alive.
struct Place {
  static constexpr std::size_t kNoIndex = static_cast<std::size_t>(-1);

  std::string_view parent{};
  std::string_view key{};
  std::size_t index = kNoIndex;
  bool is_root = false;

  std::string text() const;
};

/// One value of the document, or the lack of it, and where it is. Refers to the document, to the
/// reader that it comes from, and to the violations.
class Field {
 public:
  Field(const JsonValue* value, Place place, std::int32_t ordinal, Violations* violations)
      : value_(value), place_(place), ordinal_(ordinal), violations_(violations) {}
  static Field root(const JsonValue& document, Violations& violations);

  bool present() const { return value_ != nullptr; }
  /// Requires: present().
  const JsonValue& value() const { return *value_; }
  /// Nothing if it is missing or of another kind.
  const JsonValue* value_of_kind(JsonValue::Kind kind) const;
  std::string place() const { return place_.text(); }
  std::int32_t ordinal() const { return ordinal_; }
  Violations* violations() const { return violations_; }

  /// Records "expected <what>, got <value>", or that the key is missing.
  void refuse(std::string_view what) const;
  /// Records a message of its own.
  void add(std::string message) const;
  /// Records faults that another module found in what was read from here.
  void add_all(const std::vector<Violation>& found) const;

 private:
  const JsonValue* value_;
  Place place_;
  std::int32_t ordinal_;
  Violations* violations_;  // none inside a value that was refused already
};

/// Reads an object key by key. A fault is recorded here and now if the field is no object.
class ObjectReader {
 public:
  explicit ObjectReader(const Field& field);
  ObjectReader(const ObjectReader&) = delete;
  ObjectReader& operator=(const ObjectReader&) = delete;

  bool valid() const { return object_ != nullptr; }
  /// The member of that name, missing or not. `key` must be a literal.
  Field field(std::string_view key);
  /// Every member, whatever its key. The keys are in value().keys.
  std::vector<Field> members();
  /// Records a fault for each of the keys that is there: names kept for later versions.
  void refuse_reserved(std::initializer_list<std::string_view> keys);
  /// Records keys that were not asked for, and keys that are there twice. Readers of other tools'
  /// files, which may hold more than is asked for, leave it out.
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
  /// `what` says what is expected instead of anything but an array.
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

// Each records a fault and returns nothing if the field is missing or not what it should be.
std::optional<std::int64_t> read_integer(const Field& field, IntegerRange range);
std::optional<Factor> read_factor(const Field& field, FactorRange range);
std::optional<double> read_number(const Field& field, NumberRange range);
std::optional<bool> read_boolean(const Field& field);
/// 1 to 200 characters, none of them a control character.
std::optional<std::string> read_name(const Field& field);
/// Up to 10,000 characters, none of them a control character other than line break and tab.
std::optional<std::string> read_text(const Field& field);
std::vector<std::string> read_texts(const Field& field);
/// A SHA-256 in lower-case hex.
std::optional<std::string> read_hash(const Field& field);
/// Position of the text among `choices`.
std::optional<std::size_t> read_choice(const Field& field,
                                       const std::vector<std::string_view>& choices);

/// What `read` makes of the field; nothing, and no fault, where it is null.
template <class Value, class Read>
std::optional<Value> read_nullable(const Field& field, const Read& read) {
  if (field.value_of_kind(JsonValue::Kind::Null) != nullptr) return std::nullopt;
  return read(field);
}

/// The key of a member where keys are names; records a fault otherwise.
bool is_name(const Field& member, std::string_view key);

/// Integers that must be there, and figures that are zero or absent where they are not.
std::int64_t required_integer(const Field& field, IntegerRange range);
std::int64_t optional_integer(const Field& field, IntegerRange range, std::int64_t otherwise);
std::string optional_text(const Field& field);

/// Checks the key "schema" of a document. False if it is not `expected`, which is recorded.
bool check_schema(ObjectReader& document, std::string_view expected);

/// What `read` makes of a whole document. Throws Error(BadInput) with all faults: those of the
/// syntax, or those that `read` records.
template <class Document, class Read>
Document read_document(std::string_view text, const std::string& source_name, const Read& read) {
  const JsonValue json = parse_json(text, source_name);
  Violations violations(source_name);
  Document document = read(Field::root(json, violations));
  violations.throw_if_any();
  return document;
}

}  // namespace dapple::io
