// Converts the status codes of CUDA calls to errors.
#pragma once

#include <cuda_runtime.h>

namespace dapple::cuda {

/// Throws Error(Environment) with "CALL: message of CUDA" unless `status` is success.
void require(cudaError_t status, const char* call);

}  // namespace dapple::cuda
