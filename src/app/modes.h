// The options that say how a plan is simulated.
#pragma once

#include "dapple/command_line/options.h"
#include "dapple/plan/plan.h"

namespace dapple {

/// Value of --contention, or `otherwise` where it is not given.
Contention contention_of(const Options& options, Contention otherwise = Contention::Shared);

/// Value of --replicas, or `otherwise` where it is not given.
Replicas replicas_of(const Options& options, Replicas otherwise = Replicas::Together);

}  // namespace dapple
