// The ways in which transfers share what they cross, for the timelines that are the same in both.
#pragma once

#include "dapple/simulate/simulate.h"

namespace dapple::simulate {

inline const SimulationOptions kBothModes[] = {{.contention = Contention::Shared},
                                               {.contention = Contention::Off}};

}  // namespace dapple::simulate
