// Numbers as our formats write them: exact decimals for figures with a unit and factors, the
// shortest text for doubles that were computed. Exact decimals are read by core/decimal.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dapple/core/quantity.h"

namespace dapple::io {

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
