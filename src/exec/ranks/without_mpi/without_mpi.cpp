// Replaces mpi_job.cpp in a program built without MPI: a job cannot be started.

#include "dapple/core/error.h"
#include "dapple/exec/ranks/mpi/mpi_job.h"

namespace dapple::exec {

std::unique_ptr<RankJob> start_mpi_job(std::chrono::nanoseconds /*timeout*/) {
  throw Error(ErrorKind::Environment, "MPI", {{"", "this binary was built without MPI support"}});
}

}  // namespace dapple::exec
