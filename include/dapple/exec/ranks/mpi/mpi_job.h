// A job whose ranks a launcher of MPI has started.
//
// One thread of each process calls MPI, from its initialisation to its end, so MPI_THREAD_FUNNELED
// is enough. A message is a frame that names it and its bytes in pieces of at most 1 GiB.
#pragma once

#include <chrono>
#include <memory>

#include "dapple/exec/ranks/rank_job.h"

namespace dapple::exec {

/// One at a time, and one in a process's life; where it is not finished, the job ends with code 5.
/// Throws Error(Environment) where MPI cannot be used, was not there to build with, or some rank
/// does not start it in time. What is left to do then is to end the process by std::_Exit().
std::unique_ptr<RankJob> start_mpi_job(std::chrono::nanoseconds timeout);

}  // namespace dapple::exec
