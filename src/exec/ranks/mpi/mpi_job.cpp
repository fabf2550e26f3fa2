#include "dapple/exec/ranks/mpi/mpi_job.h"

#include <utility>

#include "exec/ranks/mpi/mpi_loop.h"

namespace dapple::exec {

std::unique_ptr<RankJob> start_mpi_job(std::chrono::nanoseconds timeout) {
  return std::make_unique<RankJob>([timeout](WireHandler handler) {
    return std::make_unique<MpiLoop>(std::move(handler), timeout);
  });
}

}  // namespace dapple::exec
