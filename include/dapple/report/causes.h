// Explains to a person why one iteration takes longer than another.
#pragma once

#include <string>

#include "dapple/core/quantity.h"
#include "dapple/plan/prediction.h"

namespace dapple::report {

/// Returns the parts that are longer in `slower` than in `faster` and by how much, such as
/// "bubble 41.20 ms, all-reduce 12.00 ms": the largest difference first, then those of at least a
/// fifth of it, in the unit that suits `whole`; ties are in the order of kTimeParts. Returns an
/// empty text if no part is longer.
std::string main_causes(const TimeParts& faster, const TimeParts& slower, Duration whole);

}  // namespace dapple::report
