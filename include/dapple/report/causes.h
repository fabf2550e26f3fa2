// Why one iteration takes longer than another, for a person.
#pragma once

#include <string>

#include "dapple/plan/plan.h"

namespace dapple {

/// The parts that make `slower` longer than `faster`, the largest loss first, with those that are
/// at least a fifth of it: "bubble 41.2 ms, all-reduce 12 ms"; ties in the order of kTimeParts.
/// Empty where no part is longer.
std::string main_causes(const TimeParts& faster, const TimeParts& slower);

}  // namespace dapple
