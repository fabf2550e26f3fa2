// Options that several commands have: for how a plan is simulated, for the memory limit of a
// search, for devices that are not equally fast, and for results as JSON.
#pragma once

#include <optional>
#include <string>

#include "dapple/command_line/options.h"
#include "dapple/plan/request.h"
#include "dapple/plan/simulation_mode.h"

namespace dapple::app {

/// Returns the row of --contention, --replicas, --memory-limit, --seed or --json.
command_line::OptionSpec contention_option(const std::string& default_value);
command_line::OptionSpec replicas_option(const std::string& default_value);
command_line::OptionSpec memory_limit_option();
command_line::OptionSpec seed_option();
command_line::OptionSpec json_option();

/// Returns the value of --contention, or nothing if it is not given.
std::optional<Contention> contention_of(const command_line::Options& options);

/// Returns the value of --replicas, or nothing if it is not given.
std::optional<Replicas> replicas_of(const command_line::Options& options);

/// Returns the values of --jitter and --seed, or nothing if --jitter is not given. Throws
/// Error(Usage) for a seed without it.
std::optional<JitterRequest> jitter_request_of(const command_line::Options& options);

/// Returns the value of --memory-limit, or the default if it is not given. Throws Error(Usage) if
/// it is below 64 MiB, too small for any search.
Bytes memory_limit_of(const command_line::Options& options);

}  // namespace dapple::app
