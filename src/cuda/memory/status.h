// What CUDA's calls return, as errors of ours.
#pragma once

#include <cuda_runtime.h>

namespace dapple::cuda {

/// Throws Error(Environment), "CALL: what CUDA says", unless `status` is success.
void require(cudaError_t status, const char* call);

}  // namespace dapple::cuda
