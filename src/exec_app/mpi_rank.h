// A command as one rank of a job that a launcher of MPI has started.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "dapple/command_line/console.h"
#include "dapple/command_line/files.h"
#include "dapple/exec/last_words.h"
#include "dapple/exec/mpi_transport.h"

namespace dapple {

/// Whether a launcher has started this process as a rank: looks at the environment.
bool is_mpi_rank();

/// Whether this process is the one to tell what is wrong with a command line that all ranks have
/// been given: rank 0, or any that is no rank. The others first wait for the launcher to end them.
bool tells_usage_errors();

/// Refuses standard input, of which a launcher gives only rank 0 anything. Throws Error(Usage).
void check_rank_inputs(const std::vector<NamedPath>& inputs);

/// Does `part` in a process of its own, and returns its exit code; what the console has collected
/// is delivered before MPI ends. Whatever fails, on whichever rank, ends the job on all of them,
/// and only the first to fail says why, on its err. `timeout` is that of MPI's start.
int run_as_rank(Console& console, std::chrono::nanoseconds timeout,
                const std::function<int(MpiJob& job, LastWords& last_words)>& part);

/// This rank's end, of the device with its place among `devices`, the plan's. Throws Error(Usage)
/// where there are not as many ranks; the log says which rank has which device.
std::unique_ptr<Transport> join_job(MpiJob& job, const Topology& topology,
                                    const std::vector<DeviceIndex>& devices,
                                    const MpiTransportOptions& options);

}  // namespace dapple
