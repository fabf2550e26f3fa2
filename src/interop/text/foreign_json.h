// Figures in other tools' JSON documents: numbers of a unit as whole counts of a smaller one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "dapple/io/json/json_reader.h"

namespace dapple::interop {

/// The number times `scale`, rounded up to a whole count from 0 to kMaxCount; a fault that names
/// the unit is recorded otherwise. Exact, however the number is written. Requires: `scale` from 1
/// to 10^12.
std::optional<std::int64_t> read_scaled(const io::Field& field, std::int64_t scale,
                                        std::string_view unit);

/// The document if it is JSON with an object at the top, whatever that holds. O(length).
std::optional<io::JsonValue> object_in(std::string_view text);

/// Whether an object has a member of that name. O(members).
bool has_key(const io::JsonValue& object, std::string_view key);

inline constexpr std::int64_t kNanosecondsPerMillisecond = 1'000'000;
inline constexpr std::int64_t kMebibyte = 1 << 20;

}  // namespace dapple::interop
