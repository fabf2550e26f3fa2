// The training backend that computes the stages of one device on the CPU, in single precision, in
// the calling thread.
#pragma once

#include <memory>

#include "dapple/exec/train/training_backend.h"

namespace dapple::exec {

/// Makes a backend with initial parameters. The job, and the rank's group if it has one, must
/// outlive it.
std::unique_ptr<TrainingBackend> make_cpu_backend(const TrainingJob& job,
                                                  const TrainingDevice& device);

}  // namespace dapple::exec
