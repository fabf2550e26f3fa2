// A job whose ranks were started by an MPI launcher.
//
// In each process only one thread calls MPI, from its initialization to its finalization, so
// MPI_THREAD_FUNNELED suffices. A message is a frame that describes it, followed by its bytes in
// pieces of at most 1 GiB.
#pragma once

#include <chrono>
#include <memory>

#include "dapple/exec/ranks/rank_job.h"

namespace dapple::exec {

/// Starts this process's part in the job; at most once in the life of a process. If
/// RankJob::finish() is not called, the job ends with kEnvironmentCode (exit_code.h). Throws
/// Error(Environment) if MPI cannot be used, if the program was built without it, or if not all
/// ranks start within the timeout. The process must then be ended by std::_Exit().
std::unique_ptr<RankJob> start_mpi_job(std::chrono::nanoseconds timeout);

}  // namespace dapple::exec
