// Computes the stages of one device on a GPU. The host runs ahead of the GPU: whatever is requested
// is enqueued, and within an iteration the host waits only for messages that have to reach host
// memory.
//
// Streams: one for computation; one for reductions, which run beside it, each after the gradients
// that it reduces; one for copies to the host of what is sent to other processes. Messages between
// devices of one process stay in the sender's memory, where the receiver reads them after the event
// that marks their completion.
//
// Precision: activations, their gradients and the working copies of the parameters have the
// requested precision; parameters, their gradients, sums and the optimizer state are in single
// precision, and so is what ranks of a group sum. With float16 the loss is scaled, initially by
// 2^16. The scale is halved after an iteration with a gradient that is not finite, whose steps are
// skipped on all devices, and doubled after 2,000 consecutive iterations without one, as in
// PyTorch.
#pragma once

#include <memory>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/exec/train/training_backend.h"

namespace dapple::exec {

/// Returns the number of GPUs that this process may use. Throws Error(Environment) if the program
/// was built without CUDA, or if there is no GPU.
int usable_gpus();

/// The GPU memory that one device of the job allocates, once.
struct CudaMemory {
  /// The demand according to the plan's memory model.
  Bytes planned;
  /// The demand beyond it: working copies, tensors in transit, libraries, and fragmentation.
  Bytes workspace;
  Bytes total() const { return planned + workspace; }
};

/// Returns the memory that a device, or a rank of one that is a group, needs. The temporary
/// workspace of the layers is taken from the profile if it was measured on a GPU, and else is an
/// upper bound. O(layers).
CudaMemory cuda_memory(const TrainingJob& job, const TrainingDevice& device);

/// Creates the backend with the initial parameters on GPU `gpu` of those that this process may use,
/// after a warm-up micro-batch that loads all kernels and libraries. The job, and the rank's groups
/// if it has any, must outlive the backend; all ranks of a group make theirs at the same time.
/// Throws Error(Environment) with the required and the free memory if the GPU has too
/// little free memory; also throws it for bf16 on a GPU of compute capability below 8.0.
std::unique_ptr<TrainingBackend> make_cuda_backend(const TrainingJob& job,
                                                   const TrainingDevice& device, int gpu);

}  // namespace dapple::exec
