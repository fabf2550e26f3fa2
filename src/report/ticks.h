// The ticks of a time axis.
#pragma once

#include <string>

#include "dapple/core/quantity.h"

namespace dapple::report {

/// Returns the least time of 1, 2 or 5 times a power of ten, in nanoseconds, that is at least
/// `columns` wide. Requires: columns_per_ns > 0.
Duration tick_length(double columns_per_ns, double columns);

/// Formats a moment exactly, with as few digits as possible, in the unit that suits `whole`:
/// "20 ms", "0 ms".
std::string tick_text(Duration moment, Duration whole);

}  // namespace dapple::report
