// Why one iteration takes longer than another, for a person.
#pragma once

#include <string>

#include "dapple/core/quantity.h"
#include "dapple/plan/prediction.h"

namespace dapple::report {

/// The parts that make `slower` longer than `faster`, the largest loss first, with those that are
/// at least a fifth of it: "bubble 41.20 ms, all-reduce 12.00 ms", in the unit that suits `whole`;
/// ties in the order of kTimeParts. Empty where no part is longer.
std::string main_causes(const TimeParts& faster, const TimeParts& slower, Duration whole);

}  // namespace dapple::report
