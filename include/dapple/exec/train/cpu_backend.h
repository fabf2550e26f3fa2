// The stages of one device computed on the CPU, in single precision, in the calling thread.
#pragma once

#include <memory>

#include "dapple/core/index.h"
#include "dapple/exec/train/training_backend.h"

namespace dapple::exec {

/// Parameters as before training. The job must outlive it.
std::unique_ptr<TrainingBackend> make_cpu_backend(const TrainingJob& job, DeviceIndex device);

}  // namespace dapple::exec
