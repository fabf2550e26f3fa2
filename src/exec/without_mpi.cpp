// In the place of mpi_transport.cpp where there is no MPI to build with: a job that cannot be made.

#include "dapple/core/error.h"
#include "dapple/exec/mpi_transport.h"

namespace dapple {

class MpiJob::State {};

MpiJob::MpiJob(std::chrono::nanoseconds /*timeout*/) {
  throw Error(ErrorKind::Environment, "MPI",
              {{"", "expected a program that was built with it, got one without"}});
}

MpiJob::~MpiJob() = default;

int MpiJob::rank() const {
  return 0;
}

int MpiJob::size() const {
  return 1;
}

bool MpiJob::is_on_one_host() const {
  return true;
}

std::unique_ptr<Transport> MpiJob::join(const Topology& /*topology*/,
                                        const std::vector<DeviceIndex>& /*devices*/,
                                        const MpiTransportOptions& /*options*/) {
  throw Bug("a job of MPI in a program without it");
}

void MpiJob::finish() {}

bool MpiJob::is_first_to_fail() noexcept {
  return true;
}

std::string rank_name(int rank, const std::string& device) {
  return "rank " + std::to_string(rank) + " (" + device + ")";
}

}  // namespace dapple
