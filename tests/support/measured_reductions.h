// Measured bus bandwidths, put into a random description.
#pragma once

#include <cstdint>

#include "dapple/core/quantity.h"
#include "dapple/topology/description.h"
#include "dice.h"

namespace dapple::small {

/// Over half of the numbers of devices and servers of every group.
void measure_reductions(Dice& dice, std::int64_t most, TopologyDescription& description);

}  // namespace dapple::small
