// The options that say how a plan is simulated, and within what a search keeps.
#pragma once

#include "dapple/command_line/options.h"
#include "dapple/plan/simulation_mode.h"

namespace dapple::app {

/// Value of --contention, or `otherwise` where it is not given.
Contention contention_of(const command_line::Options& options,
                         Contention otherwise = Contention::Shared);

/// Value of --replicas, or `otherwise` where it is not given.
Replicas replicas_of(const command_line::Options& options, Replicas otherwise = Replicas::Together);

/// Value of --memory-limit, or the default where it is not given. Throws a usage error if it is too
/// small to search anything.
Bytes memory_limit_of(const command_line::Options& options);

}  // namespace dapple::app
