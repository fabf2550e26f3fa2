#include "interop/profiles/configuration_keys.h"

#include <fmt/format.h>

#include <algorithm>

namespace dapple::interop {
namespace {

/// The largest size and vocabulary: no model is near them, and products of such sizes are computed
/// exactly.
constexpr std::int64_t kMostSize = std::int64_t{1} << 20;
constexpr std::int64_t kMostVocabulary = std::int64_t{1} << 24;
constexpr std::int64_t kMostBlocks = 10'000;

}  // namespace

std::optional<io::Field> ConfigurationKeys::given(std::string_view key) {
  const io::Field field = object_.field(key);
  const bool is_null = field.present() && field.value().kind == io::JsonValue::Kind::Null;
  return field.present() && !is_null ? std::optional(field) : std::nullopt;
}

std::int64_t ConfigurationKeys::size(std::string_view key) {
  return io::required_integer(object_.field(key), {1, kMostSize});
}

std::int64_t ConfigurationKeys::vocabulary(std::string_view key) {
  return io::required_integer(object_.field(key), {1, kMostVocabulary});
}

std::int64_t ConfigurationKeys::size_or(std::string_view key, std::int64_t otherwise) {
  const auto field = given(key);
  return field ? io::required_integer(*field, {1, kMostSize}) : otherwise;
}

std::int64_t ConfigurationKeys::count_or(std::string_view key, std::int64_t otherwise) {
  const auto field = given(key);
  return field ? io::required_integer(*field, {0, kMostSize}) : otherwise;
}

std::int64_t ConfigurationKeys::layers(std::string_view key) {
  return io::required_integer(object_.field(key), {1, kMostBlocks});
}

std::int64_t ConfigurationKeys::layers_or(std::string_view key, std::int64_t otherwise) {
  return given(key) ? layers(key) : otherwise;
}

bool ConfigurationKeys::flag(std::string_view key, bool otherwise) {
  const auto field = given(key);
  return field ? io::read_boolean(*field).value_or(otherwise) : otherwise;
}

std::string ConfigurationKeys::text(std::string_view key, std::string_view otherwise) {
  const auto field = given(key);
  return field ? io::read_text(*field).value_or(std::string(otherwise)) : std::string(otherwise);
}

std::int64_t ConfigurationKeys::count_unless_null(std::string_view key, std::int64_t otherwise) {
  const io::Field field = object_.field(key);
  return count_or(key, field.present() ? 0 : otherwise);
}

bool ConfigurationKeys::any_above_zero(std::initializer_list<std::string_view> keys,
                                       bool otherwise) {
  std::optional<bool> found;
  for (const std::string_view key : keys) {
    const auto field = given(key);
    if (!field) continue;
    const double rate = io::read_number(*field, {.least = 0, .most = 1}).value_or(0);
    found = found.value_or(false) || rate > 0;
  }
  return found.value_or(otherwise);
}

std::optional<std::vector<std::int64_t>> ConfigurationKeys::numbers(std::string_view key) {
  const auto field = given(key);
  if (!field) return std::nullopt;
  const io::ArrayReader array(*field, "an array of layer numbers");
  std::vector<std::int64_t> numbers;
  for (std::size_t i = 0; i < array.size(); ++i) {
    numbers.push_back(io::required_integer(array.at(i), {0, kMostBlocks}));
  }
  return numbers;
}

std::optional<std::vector<std::string>> ConfigurationKeys::texts(std::string_view key,
                                                                 std::int64_t length) {
  const auto field = given(key);
  if (!field) return std::nullopt;
  std::vector<std::string> texts = io::read_texts(*field);
  if (std::ssize(texts) != length) {
    field->add(fmt::format("expected one for each of {} layers, got {}", length, texts.size()));
    texts.resize(static_cast<std::size_t>(length));
  }
  return texts;
}

std::int64_t ConfigurationKeys::members_or(std::string_view key, std::int64_t otherwise) {
  const auto field = given(key);
  if (!field) return otherwise;
  if (field->value_of_kind(io::JsonValue::Kind::Object) == nullptr) {
    field->refuse("an object");
    return otherwise;
  }
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(field->value().keys.size()));
}

void ConfigurationKeys::check_divides(std::string_view key, std::int64_t value,
                                      std::int64_t divisor, std::string_view what) {
  if (value % divisor == 0) return;
  object_.field(key).add(fmt::format("expected a multiple of {}, of which there are {}, got {}",
                                     what, divisor, value));
}

void ConfigurationKeys::finish() {
  object_.members();
  object_.finish();
}

void ConfigurationKeys::refuse(std::string_view key, std::string_view what) {
  object_.field(key).refuse(what);
}

}  // namespace dapple::interop
