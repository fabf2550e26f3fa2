// The options for how a plan is simulated and for the memory limit of a search.
#pragma once

#include "dapple/command_line/options.h"
#include "dapple/plan/simulation_mode.h"

namespace dapple::app {

/// Returns the value of --contention, or `otherwise` if it is not given.
Contention contention_of(const command_line::Options& options,
                         Contention otherwise = Contention::Shared);

/// Returns the value of --replicas, or `otherwise` if it is not given.
Replicas replicas_of(const command_line::Options& options, Replicas otherwise = Replicas::Together);

/// Returns the value of --memory-limit, or the default if it is not given. Throws Error(Usage) if
/// it is below 64 MiB, too small for any search.
Bytes memory_limit_of(const command_line::Options& options);

}  // namespace dapple::app
