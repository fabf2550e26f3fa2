#include "cuda/memory/status.h"

#include <fmt/format.h>

#include "dapple/core/error.h"

namespace dapple::cuda {

void require(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  throw Error{ErrorKind::Environment,
              "CUDA",
              {{"", fmt::format("{}: {}", call, cudaGetErrorString(status))}}};
}

}  // namespace dapple::cuda
