// In the place of mpi_job.cpp where there is no MPI to build with: a job that cannot be started.

#include "dapple/core/error.h"
#include "dapple/exec/ranks/mpi/mpi_job.h"

namespace dapple::exec {

std::unique_ptr<RankJob> start_mpi_job(std::chrono::nanoseconds /*timeout*/) {
  throw Error(ErrorKind::Environment, "MPI",
              {{"", "expected a program that was built with it, got one without"}});
}

}  // namespace dapple::exec
