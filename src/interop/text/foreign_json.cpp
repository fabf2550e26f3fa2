#include "interop/text/foreign_json.h"

#include <fmt/format.h>

#include <algorithm>

#include "dapple/core/decimal.h"
#include "dapple/core/error.h"

namespace dapple::interop {

using io::Field;
using io::JsonValue;

std::optional<std::int64_t> read_scaled(const Field& field, std::int64_t scale,
                                        std::string_view unit) {
  RoundedCount rounded{.count = 0, .fault = DecimalFault::NotANumber};
  if (const JsonValue* value = field.value_of_kind(JsonValue::Kind::Integer)) {
    rounded = scaled_up(fmt::format("{}", value->integer), scale);
  } else if (const JsonValue* decimal = field.value_of_kind(JsonValue::Kind::Decimal)) {
    rounded = scaled_up(decimal->text, scale);
  }
  if (rounded.fault == DecimalFault::None) return rounded.count;
  field.refuse(fmt::format("a number of {}, 0 or more and not beyond measure", unit));
  return std::nullopt;
}

std::optional<JsonValue> object_in(std::string_view text) {
  // A text that does not begin with a brace need not be parsed.
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos || text[begin] != '{') return std::nullopt;
  try {
    JsonValue document = io::parse_json(text, "");
    if (document.kind == JsonValue::Kind::Object) return document;
  } catch (const Error&) { return std::nullopt; }
  return std::nullopt;
}

bool has_key(const JsonValue& object, std::string_view key) {
  return std::find(object.keys.begin(), object.keys.end(), key) != object.keys.end();
}

}  // namespace dapple::interop
