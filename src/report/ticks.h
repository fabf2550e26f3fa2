// The axis of a drawing over time.
#pragma once

#include <string>

#include "dapple/core/quantity.h"

namespace dapple::report {

/// A round length of time, 1, 2 or 5 times a power of ten, at least `columns` wide.
/// Requires: columns_per_ns > 0.
Duration tick_length(double columns_per_ns, double columns);

/// A moment in no more digits than it needs, in the unit that suits the whole drawing: "20 ms", "0
/// ms".
std::string tick_text(Duration moment, Duration whole);

}  // namespace dapple::report
