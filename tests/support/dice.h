// Seeded random numbers for property tests.
#pragma once

#include "dapple/core/random.h"

namespace dapple::small {

using Dice = RandomSequence;

}  // namespace dapple::small
