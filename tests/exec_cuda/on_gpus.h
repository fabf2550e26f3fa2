// The GPUs that the ranks of a training use in these tests.
#pragma once

#include <memory>

#include "dapple/cuda/memory/device.h"
#include "dapple/exec/gpu/cuda_backend.h"
#include "dapple/exec/train/training_backend.h"

namespace dapple {

/// All ranks share the first GPU.
inline std::unique_ptr<exec::TrainingBackend> on_gpu(const exec::TrainingJob& job,
                                                     const exec::TrainingDevice& own) {
  return exec::make_cuda_backend(job, own, 0);
}

/// Ranks have different ones, as far as there are as many.
inline std::unique_ptr<exec::TrainingBackend> on_gpus(const exec::TrainingJob& job,
                                                      const exec::TrainingDevice& own) {
  const DeviceIndex number = job.number_of(own.device, own.number);
  return exec::make_cuda_backend(job, own, number.value % cuda::gpu_count());
}

}  // namespace dapple
