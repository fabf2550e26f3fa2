// Replaces the NCCL transport in a program built without NCCL.

#include "dapple/core/error.h"
#include "dapple/exec/nccl/nccl_transport.h"

namespace dapple::exec {

bool is_built_with_nccl() {
  return false;
}

std::unique_ptr<Transport> make_nccl_transport(Transport& /*below*/, const Topology& /*topology*/,
                                               const NcclTransportOptions& /*options*/) {
  throw Bug("messages by NCCL in a program without it");
}

}  // namespace dapple::exec
