// Reads the keys of a configuration, in which null stands for a missing key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/io/json/json_reader.h"

namespace dapple::interop {

class ConfigurationKeys {
 public:
  explicit ConfigurationKeys(const io::Field& field) : object_(field) {}

  /// Returns a size from 1 to 2^20, or of a vocabulary to 2^24; 1, with a violation, if it is
  /// missing or none.
  std::int64_t size(std::string_view key);
  std::int64_t vocabulary(std::string_view key);
  /// The same, but `otherwise` without a violation if it is missing.
  std::int64_t size_or(std::string_view key, std::int64_t otherwise);
  /// A size or 0.
  std::int64_t count_or(std::string_view key, std::int64_t otherwise);
  /// A number of layers, at most 10,000.
  std::int64_t layers(std::string_view key);
  std::int64_t layers_or(std::string_view key, std::int64_t otherwise);
  bool flag(std::string_view key, bool otherwise);
  std::string text(std::string_view key, std::string_view otherwise);
  /// The same, but 0 if it is null.
  std::int64_t count_unless_null(std::string_view key, std::int64_t otherwise);
  /// Whether any of the keys is a number above zero, a rate of dropout; `otherwise` if all of them
  /// are missing.
  bool any_above_zero(std::initializer_list<std::string_view> keys, bool otherwise);
  /// Returns the layers of a list of layer numbers; nothing if it is missing.
  std::optional<std::vector<std::int64_t>> numbers(std::string_view key);
  /// Returns the texts of a list, which has to be as long as there are layers; nothing if it is
  /// missing.
  std::optional<std::vector<std::string>> texts(std::string_view key, std::int64_t length);
  /// Returns the number of members of an object, or `otherwise` if it is missing.
  std::int64_t members_or(std::string_view key, std::int64_t otherwise);
  /// Records a violation unless `value` is a multiple of `divisor`.
  void check_divides(std::string_view key, std::int64_t value, std::int64_t divisor,
                     std::string_view what);
  /// Records keys that occur more than once.
  void finish();
  /// Records that the key's value is not what is expected.
  void refuse(std::string_view key, std::string_view what);

 private:
  /// Returns the member if it is there and not null.
  std::optional<io::Field> given(std::string_view key);

  io::ObjectReader object_;
};

}  // namespace dapple::interop
