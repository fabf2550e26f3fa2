// The times of a stage whose replicas start together: those of the slowest one.
#pragma once

#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/cost/stage.h"

namespace dapple {

/// Replaces each moment by the later of the two.
void raise_to(std::vector<Duration>& moments, const std::vector<Duration>& others);

/// Raises a stage's times to those of a replica, of whose backward `recomputation` is a part.
void slow_down_to(StageCost& stage, const ReplicaCost& replica, Duration recomputation);

}  // namespace dapple
