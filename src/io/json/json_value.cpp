#include "dapple/io/json/json_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>

#include "dapple/core/error.h"
#include "io/json/json_writer.h"
#include "io/json/number_text.h"

namespace dapple::io {
namespace {

using Json = nlohmann::json;

/// A syntax error.
struct SyntaxFault {
  // The position of the byte in the text.
  std::size_t position = 0;
  std::string message;
};

bool belongs_to_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         c == '-' || c == '+' || c == '.' || static_cast<unsigned char>(c) >= 0x80;
}

/// Returns a fault that shows the whole word at `position`; the parser stops at its first wrong
/// letter.
SyntaxFault word_fault(std::string_view text, std::size_t position, std::string_view expected) {
  std::size_t begin = std::min(position, text.size());
  while (begin > 0 && belongs_to_word(text[begin - 1])) --begin;
  std::size_t end = std::min(position, text.size());
  while (end < text.size() && belongs_to_word(text[end])) ++end;
  if (begin == end && end < text.size()) ++end;
  return {begin,
          fmt::format("expected {}, got {}", expected, quoted(text.substr(begin, end - begin)))};
}

/// Recognizes common syntax of other formats that JSON does not allow: comments, a comma after the
/// last element, single quotes. Requires: position < text.size().
std::optional<SyntaxFault> foreign_syntax(std::string_view text, std::size_t position) {
  const char c = text[position];
  const std::string_view two = text.substr(position, 2);
  if (c == '#' || two == "//" || two == "/*") {
    return SyntaxFault{position, "expected no comment, as JSON has none, got one"};
  }
  if (c == '\'') return SyntaxFault{position, "expected text in double quotes, got a single one"};
  if (c != '}' && c != ']') return std::nullopt;
  const std::size_t before = text.find_last_not_of(" \t\r\n", position == 0 ? 0 : position - 1);
  if (before == std::string_view::npos || text[before] != ',') return std::nullopt;
  return SyntaxFault{before, fmt::format("expected no comma before '{}', got one", c)};
}

/// Translates the library's error message, without its prefix and position, into the form of our
/// messages.
SyntaxFault translate(std::string_view text, std::size_t position, std::string_view sentence) {
  if (position < text.size()) {
    if (const auto fault = foreign_syntax(text, position)) return *fault;
  }
  const std::size_t dash = sentence.find(" - ");
  // The only other error is a number out of range.
  if (dash == std::string_view::npos)
    return word_fault(text, position, "a number in the range of a double");
  std::string_view detail = sentence.substr(dash + 3);
  detail = detail.substr(0, detail.find("; last read"));
  const auto begins_with = [&detail](std::string_view start) {
    return detail.substr(0, start.size()) == start;
  };
  if (detail == "invalid literal" || begins_with("invalid number"))
    return word_fault(text, position, "a JSON value");
  if (detail == "invalid string: ill-formed UTF-8 byte")
    return {position, "expected UTF-8 text, got an ill-formed byte"};
  constexpr std::string_view kUnexpected = "unexpected ";
  const std::size_t expected = detail.find("; expected ");
  if (begins_with(kUnexpected) && expected != std::string_view::npos) {
    return {position,
            fmt::format("expected {}, got {}", detail.substr(expected + 11),
                        detail.substr(kUnexpected.size(), expected - kUnexpected.size()))};
  }
  return {position, fmt::format("expected valid JSON, got an {}", printable(detail))};
}

/// Builds a JsonValue from the library's events. Each open container is the last element of the one
/// that encloses it, so that the pointers to open containers stay valid.
class Builder {
 public:
  explicit Builder(std::string_view text) : text_(text) {}

  bool null() { return add({}); }
  bool boolean(bool value) { return add({.kind = JsonValue::Kind::Boolean, .boolean = value}); }
  bool number_integer(std::int64_t value) {
    return add({.kind = JsonValue::Kind::Integer, .integer = value});
  }
  bool number_unsigned(std::uint64_t value) {
    if (value > static_cast<std::uint64_t>(INT64_MAX))
      return add({.kind = JsonValue::Kind::Decimal, .text = fmt::format("{}", value)});
    return number_integer(static_cast<std::int64_t>(value));
  }
  bool number_float(double, const std::string& digits) {
    return add({.kind = JsonValue::Kind::Decimal, .text = digits});
  }
  bool string(std::string& value) {
    return add({.kind = JsonValue::Kind::Text, .text = std::move(value)});
  }
  bool binary(Json::binary_t&) { return false; }
  bool start_object(std::size_t) { return open(JsonValue::Kind::Object); }
  bool end_object() { return close(); }
  bool start_array(std::size_t) { return open(JsonValue::Kind::Array); }
  bool end_array() { return close(); }
  bool key(std::string& value) {
    open_.back()->keys.push_back(std::move(value));
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const Json::exception& exception) {
    // The library's position is the number of bytes read, including the faulty one.
    fault_ = translate(text_, position == 0 ? 0 : position - 1, exception.what());
    has_position_ = true;
    return false;
  }

  JsonValue take_root() { return std::move(root_); }
  const SyntaxFault& fault() const { return fault_; }
  bool has_position() const { return has_position_; }

 private:
  bool add(JsonValue value) {
    if (count_ == kMaxValues) {
      fault_.message = fmt::format("expected at most {} JSON values, got more", kMaxValues);
      return false;
    }
    value.ordinal = count_++;
    if (open_.empty()) {
      root_ = std::move(value);
    } else {
      open_.back()->elements.push_back(std::move(value));
    }
    return true;
  }
  bool open(JsonValue::Kind kind) {
    if (open_.size() == kMaxDepth) {
      fault_.message = fmt::format("expected at most {} levels of nesting, got more", kMaxDepth);
      return false;
    }
    if (!add({.kind = kind})) return false;
    open_.push_back(open_.empty() ? &root_ : &open_.back()->elements.back());
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_;
  JsonValue root_;
  std::vector<JsonValue*> open_;
  std::int32_t count_ = 0;
  SyntaxFault fault_;
  bool has_position_ = false;
};

/// Finds the value of the top-level key "schema" and stops parsing there.
class SchemaFinder {
 public:
  bool null() { return value(); }
  bool boolean(bool) { return value(); }
  bool number_integer(std::int64_t) { return value(); }
  bool number_unsigned(std::uint64_t) { return value(); }
  bool number_float(double, const std::string&) { return value(); }
  bool string(std::string& text) {
    if (awaited_) schema_ = std::move(text);
    return value();
  }
  bool binary(Json::binary_t&) { return false; }
  bool start_object(std::size_t) { return value() && ++depth_ <= kMaxDepth; }
  bool end_object() {
    --depth_;
    return true;
  }
  // A document that is an array has no schema; inside an object, arrays only add depth.
  bool start_array(std::size_t) { return depth_ > 0 && start_object(0); }
  bool end_array() { return end_object(); }
  bool key(std::string& name) {
    awaited_ = depth_ == 1 && name == "schema";
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const Json::exception&) { return false; }

  std::string take() { return std::move(schema_); }

 private:
  bool value() const { return !awaited_; }

  std::size_t depth_ = 0;
  bool awaited_ = false;
  std::string schema_;
};

[[noreturn]] void refuse(const std::string& source_name, std::string place, std::string message) {
  throw Error(ErrorKind::BadInput, source_name, {{std::move(place), std::move(message)}});
}

std::string line_and_column(std::string_view text, std::size_t position) {
  const std::string_view before = text.substr(0, std::min(position, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t line_break = before.rfind('\n');
  const std::size_t column =
      line_break == std::string_view::npos ? before.size() + 1 : before.size() - line_break;
  return fmt::format("line {}, column {}", line, column);
}

}  // namespace

JsonValue parse_json(std::string_view text, const std::string& source_name) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    refuse(source_name, "", "expected a JSON document, got an empty file");
  // The library would treat a zero byte as the end of the text.
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos)
    refuse(source_name, line_and_column(text, zero), "expected JSON text, got a zero byte");
  Builder builder(text);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    const SyntaxFault& fault = builder.fault();
    refuse(source_name, builder.has_position() ? line_and_column(text, fault.position) : "",
           fault.message);
  }
  return builder.take_root();
}

std::string canonical_text(const JsonValue& value) {
  switch (value.kind) {
    case JsonValue::Kind::Null:
      return "null";
    case JsonValue::Kind::Boolean:
      return value.boolean ? "true" : "false";
    case JsonValue::Kind::Integer:
      return fmt::format("{}", value.integer);
    case JsonValue::Kind::Decimal:
      return write_number(parse_number(value.text));
    case JsonValue::Kind::Text:
      return json_string(value.text);
    case JsonValue::Kind::Array:
    case JsonValue::Kind::Object:
      break;
  }
  const bool is_object = value.kind == JsonValue::Kind::Object;
  std::vector<std::size_t> order(value.elements.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (is_object) {
    std::stable_sort(order.begin(), order.end(), [&value](std::size_t a, std::size_t b) {
      return value.keys[a] < value.keys[b];
    });
  }
  std::string text(1, is_object ? '{' : '[');
  for (const std::size_t position : order) {
    if (text.size() > 1) text += ", ";
    if (is_object) text += json_string(value.keys[position]) + ": ";
    text += canonical_text(value.elements[position]);
  }
  return text + (is_object ? '}' : ']');
}

std::string find_schema(std::string_view text) {
  SchemaFinder finder;
  Json::sax_parse(text.begin(), text.end(), &finder);
  return finder.take();
}

}  // namespace dapple::io
