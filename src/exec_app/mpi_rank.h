// A command as one rank of a job that a launcher of MPI has started.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "dapple/command_line/console.h"
#include "dapple/exec/last_words.h"
#include "dapple/exec/mpi_transport.h"

namespace dapple {

/// Whether a launcher has started this process as a rank: looks at the environment.
bool is_mpi_rank();

/// Does `part` in a process of its own, and returns its exit code. Whatever fails, on whichever
/// rank, ends the job on all of them, and only the first to fail says why, on its err.
int run_as_rank(Console& console,
                const std::function<int(MpiJob& job, LastWords& last_words)>& part);

/// This rank's end, of the device with its place among `devices`, the plan's. Throws Error(Usage)
/// where there are not as many ranks; the log says which rank has which device.
std::unique_ptr<Transport> join_job(MpiJob& job, const Topology& topology,
                                    const std::vector<DeviceIndex>& devices,
                                    MpiTransportOptions options);

}  // namespace dapple
