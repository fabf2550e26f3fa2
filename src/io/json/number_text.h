// Numbers in the project's formats: exact decimals for factors and quantities with a unit, and the
// shortest round-trip text for computed doubles. core/decimal.h reads exact decimals.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dapple/core/quantity.h"

namespace dapple::io {

/// Returns `count` / `scale` as an exact decimal with no trailing zeros. Requires: count >= 0 and
/// `scale` is a power of ten.
std::string decimal_text(std::int64_t count, std::int64_t scale);

/// Returns a factor as an exact decimal: "0.4" for 400,000,000 billionths.
std::string factor_text(Factor factor);

/// Returns the double nearest to the number in `text`. Requires: `text` is a number in the range of
/// a double.
double parse_number(std::string_view text);

/// Returns the shortest text that reads back as the same double. Requires: `value` is finite.
std::string write_number(double value);

}  // namespace dapple::io
