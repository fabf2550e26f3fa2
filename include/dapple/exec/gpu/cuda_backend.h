// The stages of one device computed on a GPU. The host runs ahead: what it is asked for is
// enqueued, and nothing is waited for inside an iteration but messages that have to reach the host.
//
// Streams: computation; reductions beside it, each behind the gradients that it reduces; copies to
// the host of what is sent to other processes. Messages between devices of one process stay where
// they are and are read there, behind the event of what made them.
//
// Precision: activations, their gradients and working copies of the parameters are in the precision
// asked for; parameters, their gradients, sums and the optimizer's state are in single precision.
// For float16 the loss is scaled, by 2^16 at first: half of it after an iteration with a gradient
// that is none, whose steps are left out on all devices, and twice of it after 2,000 others, as
// PyTorch does it.
#pragma once

#include <memory>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/exec/train/training_backend.h"

namespace dapple::exec {

/// GPUs that this process may use. Throws Error(Environment) where the program was built without
/// CUDA, or there is none.
int usable_gpus();

/// Memory that a device of the job takes of its GPU, once.
struct CudaMemory {
  Bytes planned;    // what the plan's memory model says
  Bytes workspace;  // beside it: working copies, tensors on their way, libraries, and gaps
  Bytes total() const { return planned + workspace; }
};
/// What layers take for a moment is what the profile has measured of them, on a GPU; where it has
/// nothing, the most that they may take. O(layers).
CudaMemory cuda_memory(const TrainingJob& job, DeviceIndex device);

/// Parameters as before training, on GPU `gpu` of those that this process may use, which has loaded
/// all that it computes with: by computing a micro-batch. The job must outlive it. Throws
/// Error(Environment) naming both numbers where the GPU has less memory free than that.
std::unique_ptr<TrainingBackend> make_cuda_backend(const TrainingJob& job, DeviceIndex device,
                                                   int gpu);

}  // namespace dapple::exec
