// Decimal numbers: exact ones for figures with a unit and factors, and doubles for figures that
// were computed.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "dapple/core/quantity.h"

namespace dapple::io {

/// The number in `text` (as JSON writes it: sign, digits, fraction, exponent) times `scale`, if
/// that is a whole number below 10^36; nothing otherwise. Exact. Requires: 1 <= scale <= 10^12.
std::optional<Wide> scaled_decimal(std::string_view text, Wide scale);

/// `count` / `scale` with as many decimals as it needs. Requires: scale is a power of ten.
std::string decimal_text(std::int64_t count, std::int64_t scale);

/// "0.4" for 400,000,000 billionths.
std::string factor_text(Factor factor);

/// The double that is nearest to the number in `text`. Requires: it is one, within a double's
/// range.
double parse_number(std::string_view text);

/// The shortest text that reads back as the same double. Requires: `value` is finite.
std::string write_number(double value);

}  // namespace dapple::io
