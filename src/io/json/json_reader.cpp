#include "dapple/io/json/json_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "dapple/core/decimal.h"
#include "dapple/core/error.h"
#include "io/json/json_writer.h"
#include "io/json/number_text.h"

namespace dapple::io {
namespace {

constexpr std::size_t kMaxShownViolations = 100;
constexpr std::size_t kMaxKeptViolations = 10'000;
constexpr std::size_t kMaxNameLength = 200;
constexpr std::size_t kMaxTextLength = 10'000;

/// Describes a value for a message.
std::string describe(const JsonValue& value) {
  switch (value.kind) {
    case JsonValue::Kind::Null:
    case JsonValue::Kind::Boolean:
    case JsonValue::Kind::Integer:
      return canonical_text(value);
    case JsonValue::Kind::Decimal:
      return value.text.size() <= 40 ? value.text : value.text.substr(0, 40) + "...";
    case JsonValue::Kind::Text:
      return quoted(value.text);
    case JsonValue::Kind::Array:
      return value.elements.empty() ? "an empty array" : "an array";
    case JsonValue::Kind::Object:
      return value.elements.empty() ? "an empty object" : "an object";
  }
  return "";
}

std::string quoted_list(const std::vector<std::string_view>& names, std::string_view conjunction) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? fmt::format(" {} ", conjunction) : ", ";
    text += quoted(names[i]);
  }
  return text;
}

enum class LineBreaks { Allowed, Refused };

/// Returns the number of characters of `text`, or nothing if one of them is a control character
/// that is not allowed.
std::optional<std::size_t> count_characters(std::string_view text, LineBreaks line_breaks) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool is_break = byte == '\n' || byte == '\t';
    if ((byte < 0x20 && !(is_break && line_breaks == LineBreaks::Allowed)) || byte == 0x7f)
      return std::nullopt;
    // The control characters U+0080 to U+009F in UTF-8.
    if (byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0)
      return std::nullopt;
    if ((byte & 0xc0) != 0x80) ++count;
  }
  return count;
}

bool is_good_name(std::string_view text) {
  const std::optional<std::size_t> length = count_characters(text, LineBreaks::Refused);
  return length && *length >= 1 && *length <= kMaxNameLength;
}

constexpr std::string_view kNameExpected =
    "a name of 1 to 200 characters, none of them a control character";

std::string range_text(FactorRange range) {
  if (range.least.billionths == 1)
    return fmt::format("above 0 and up to {}", factor_text(range.most));
  return fmt::format("from {} to {}", factor_text(range.least), factor_text(range.most));
}

}  // namespace

void Violations::add(std::int32_t ordinal, std::string place, std::string message) {
  ++count_;
  if (entries_.size() < kMaxKeptViolations)
    entries_.push_back({ordinal, std::move(place), std::move(message)});
}

void Violations::throw_if_any() {
  if (empty()) return;
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const Entry& a, const Entry& b) { return a.ordinal < b.ordinal; });
  std::vector<Violation> shown;
  for (Entry& entry : entries_) {
    if (shown.size() == kMaxShownViolations) break;
    shown.push_back({std::move(entry.place), std::move(entry.message)});
  }
  if (count_ > shown.size())
    shown.push_back({"", fmt::format("and {} more faults, not shown", count_ - shown.size())});
  throw Error(ErrorKind::BadInput, source_name_, std::move(shown));
}

std::string Place::text() const {
  if (is_root) return "";
  if (index != kNoIndex) return fmt::format("{}/{}", parent, index);
  return fmt::format("{}/{}", parent, pointer_step(printable(key)));
}

Field Field::root(const JsonValue& document, Violations& violations) {
  return {&document, Place{.is_root = true}, document.ordinal, &violations};
}

const JsonValue* Field::value_of_kind(JsonValue::Kind kind) const {
  return present() && value_->kind == kind ? value_ : nullptr;
}

void Field::refuse(std::string_view what) const {
  add(present() ? fmt::format("expected {}, got {}", what, describe(*value_))
                : fmt::format("expected {}, but the key is missing", what));
}

void Field::add(std::string message) const {
  if (violations_ != nullptr) violations_->add(ordinal_, place(), std::move(message));
}

void Field::add_all(const std::vector<Violation>& found) const {
  if (violations_ == nullptr) return;
  const std::string prefix = place();
  for (const Violation& violation : found)
    violations_->add(ordinal_, prefix + violation.place, violation.message);
}

ObjectReader::ObjectReader(const Field& field)
    : object_(field.value_of_kind(JsonValue::Kind::Object)),
      place_(field.place()),
      ordinal_(field.ordinal()),
      violations_(object_ == nullptr ? nullptr : field.violations()) {
  if (object_ == nullptr) field.refuse("an object");
}

Field ObjectReader::field(std::string_view key) {
  known_.push_back(key);
  const JsonValue* found = nullptr;
  if (object_ != nullptr) {
    const auto at = std::find(object_->keys.begin(), object_->keys.end(), key);
    if (at != object_->keys.end())
      found = &object_->elements[static_cast<std::size_t>(at - object_->keys.begin())];
  }
  return {found,
          {.parent = place_, .key = key},
          found == nullptr ? ordinal_ : found->ordinal,
          violations_};
}

std::vector<Field> ObjectReader::members() {
  takes_any_key_ = true;
  std::vector<Field> result;
  if (object_ == nullptr) return result;
  for (std::size_t i = 0; i < object_->keys.size(); ++i) {
    const JsonValue& value = object_->elements[i];
    const Place place{.parent = place_, .key = object_->keys[i]};
    result.emplace_back(&value, place, value.ordinal, violations_);
  }
  return result;
}

void ObjectReader::refuse_reserved(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    const Field reserved = field(key);
    known_.pop_back();
    reserved_.push_back(key);
    if (reserved.present())
      reserved.add(fmt::format("{} is not supported by this version", quoted(key)));
  }
}

void ObjectReader::finish() {
  if (object_ == nullptr) return;
  report_repeated_keys();
  if (takes_any_key_) return;
  const auto contains = [](const std::vector<std::string_view>& keys, const std::string& key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  };
  for (std::size_t i = 0; i < object_->keys.size(); ++i) {
    const std::string& key = object_->keys[i];
    if (contains(known_, key) || contains(reserved_, key)) continue;
    violations_->add(
        object_->elements[i].ordinal, Place{.parent = place_, .key = key}.text(),
        fmt::format("expected one of the keys {}, got an unknown key", quoted_list(known_, "or")));
  }
}

void ObjectReader::report_repeated_keys() const {
  std::set<std::string_view> seen;
  for (std::size_t i = 0; i < object_->keys.size(); ++i) {
    if (seen.insert(object_->keys[i]).second) continue;
    violations_->add(object_->elements[i].ordinal,
                     Place{.parent = place_, .key = object_->keys[i]}.text(),
                     "expected each key once, got this key again");
  }
}

ArrayReader::ArrayReader(const Field& field, std::string_view what)
    : array_(field.value_of_kind(JsonValue::Kind::Array)),
      place_(field.place()),
      violations_(field.violations()) {
  if (array_ == nullptr) field.refuse(what);
}

Field ArrayReader::at(std::size_t index) const {
  const JsonValue& value = array_->elements[index];
  return {&value, {.parent = place_, .index = index}, value.ordinal, violations_};
}

std::optional<std::int64_t> read_integer(const Field& field, IntegerRange range) {
  const JsonValue* value = field.value_of_kind(JsonValue::Kind::Integer);
  if (value != nullptr && value->integer >= range.least && value->integer <= range.most)
    return value->integer;
  field.refuse(fmt::format("an integer from {} to {}", range.least, range.most));
  return std::nullopt;
}

std::optional<Factor> read_factor(const Field& field, FactorRange range) {
  std::optional<Wide> billionths;
  if (const JsonValue* value = field.value_of_kind(JsonValue::Kind::Integer))
    billionths = Wide{value->integer} * kOne.billionths;
  if (const JsonValue* value = field.value_of_kind(JsonValue::Kind::Decimal))
    billionths = scaled_exactly(value->text, kOne.billionths);
  if (billionths && *billionths >= range.least.billionths && *billionths <= range.most.billionths)
    return Factor{static_cast<std::int64_t>(*billionths)};
  field.refuse(fmt::format("a number {} with at most nine decimal places", range_text(range)));
  return std::nullopt;
}

std::optional<double> read_number(const Field& field, NumberRange range) {
  std::optional<double> number;
  if (const JsonValue* value = field.value_of_kind(JsonValue::Kind::Integer))
    number = static_cast<double>(value->integer);
  if (const JsonValue* value = field.value_of_kind(JsonValue::Kind::Decimal))
    number = parse_number(value->text);
  if (number && *number >= range.least && *number <= range.most) return number;
  field.refuse(
      fmt::format("a number from {} to {}", write_number(range.least), write_number(range.most)));
  return std::nullopt;
}

std::optional<bool> read_boolean(const Field& field) {
  if (const JsonValue* value = field.value_of_kind(JsonValue::Kind::Boolean)) return value->boolean;
  field.refuse("true or false");
  return std::nullopt;
}

std::optional<std::string> read_name(const Field& field) {
  const JsonValue* value = field.value_of_kind(JsonValue::Kind::Text);
  if (value != nullptr && is_good_name(value->text)) return value->text;
  field.refuse(kNameExpected);
  return std::nullopt;
}

std::optional<std::string> read_text(const Field& field) {
  if (const JsonValue* value = field.value_of_kind(JsonValue::Kind::Text)) {
    const std::optional<std::size_t> length = count_characters(value->text, LineBreaks::Allowed);
    if (length && *length <= kMaxTextLength) return value->text;
  }
  field.refuse("a text of at most 10000 characters, none of them a control character");
  return std::nullopt;
}

std::vector<std::string> read_texts(const Field& field) {
  const ArrayReader array(field, "an array of texts");
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < array.size(); ++i)
    if (std::optional<std::string> text = read_text(array.at(i))) texts.push_back(std::move(*text));
  return texts;
}

std::optional<std::string> read_hash(const Field& field) {
  const JsonValue* value = field.value_of_kind(JsonValue::Kind::Text);
  if (value != nullptr && value->text.size() == 64 &&
      value->text.find_first_not_of("0123456789abcdef") == std::string::npos)
    return value->text;
  field.refuse("64 hexadecimal digits");
  return std::nullopt;
}

std::optional<std::size_t> read_choice(const Field& field,
                                       const std::vector<std::string_view>& choices) {
  if (const JsonValue* value = field.value_of_kind(JsonValue::Kind::Text)) {
    const auto at = std::find(choices.begin(), choices.end(), value->text);
    if (at != choices.end()) return static_cast<std::size_t>(at - choices.begin());
  }
  field.refuse(quoted_list(choices, "or"));
  return std::nullopt;
}

bool is_name(const Field& member, std::string_view key) {
  if (is_good_name(key)) return true;
  member.add(fmt::format("expected as key {}, got {}", kNameExpected, quoted(key)));
  return false;
}

std::int64_t required_integer(const Field& field, IntegerRange range) {
  return read_integer(field, range).value_or(range.least);
}

std::int64_t optional_integer(const Field& field, IntegerRange range, std::int64_t otherwise) {
  return field.present() ? read_integer(field, range).value_or(otherwise) : otherwise;
}

std::string optional_text(const Field& field) {
  return field.present() ? read_text(field).value_or("") : "";
}

bool check_schema(ObjectReader& document, std::string_view expected) {
  if (!document.valid()) return false;
  const Field schema = document.field("schema");
  const JsonValue* value = schema.value_of_kind(JsonValue::Kind::Text);
  if (value != nullptr && value->text == expected) return true;
  const std::string_view kind = expected.substr(0, expected.find('/') + 1);
  constexpr std::string_view kOurs = "dapple-";
  if (value != nullptr && value->text.substr(0, kind.size()) == kind) {
    schema.add(fmt::format("expected \"{}\", got {}, a version that this program does not read",
                           expected, quoted(value->text)));
  } else if (value != nullptr && value->text.substr(0, kOurs.size()) == kOurs) {
    schema.add(fmt::format("expected \"{}\", got {}, another kind of document", expected,
                           quoted(value->text)));
  } else {
    schema.refuse(fmt::format("\"{}\"", expected));
  }
  return false;
}

}  // namespace dapple::io
