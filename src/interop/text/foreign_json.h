// Reads JSON documents of other tools, in particular numbers in one unit as whole counts of a
// smaller one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "dapple/io/json/json_reader.h"

namespace dapple::interop {

/// Returns the number times `scale`, rounded up to a whole count from 0 to kMaxCount. Otherwise
/// records a fault that names the unit and returns nothing. The product is exact in whatever
/// notation the number is written. Requires: `scale` is from 1 to 10^12.
std::optional<std::int64_t> read_scaled(const io::Field& field, std::int64_t scale,
                                        std::string_view unit);

/// Returns the document if it is JSON with an object at the top level, otherwise nothing.
/// O(length).
std::optional<io::JsonValue> object_in(std::string_view text);

/// Whether the object has a member of that name. O(members).
bool has_key(const io::JsonValue& object, std::string_view key);

inline constexpr std::int64_t kNanosecondsPerMillisecond = 1'000'000;
inline constexpr std::int64_t kMebibyte = 1 << 20;

}  // namespace dapple::interop
