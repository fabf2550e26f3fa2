#include "dapple/exec/gpu/cuda_backend.h"

#include <fmt/format.h>

#include <mutex>

#include "dapple/core/error.h"
#include "exec/gpu/cuda_math.h"
#include "exec/train/model_backend.h"

namespace dapple::exec {
namespace {

void check_precision(cuda::Precision precision, int gpu, const cuda::GpuProperties& found) {
  constexpr int kFirstWithBFloat16 = 80;
  if (precision != cuda::Precision::BFloat16 || found.capability >= kFirstWithBFloat16) return;
  throw Error(ErrorKind::Environment, fmt::format("GPU {}", gpu),
              {{"", fmt::format("expected compute capability 8.0 or later for bf16, got {}.{}, {}; "
                                "with --precision fp16 it trains in half precision",
                                found.capability / 10, found.capability % 10, found.name)}});
}

void check_free_memory(const CudaMemory& memory, int gpu, const cuda::GpuProperties& found) {
  if (memory.total() <= found.free_memory) return;
  throw Error(
      ErrorKind::Environment, fmt::format("GPU {}", gpu),
      {{"", fmt::format("expected {} bytes of free memory, {} by the plan's memory model and "
                        "{} of workspace, got {} of {} on {}",
                        memory.total().count, memory.planned.count, memory.workspace.count,
                        found.free_memory.count, found.memory.count, found.name)}});
}

/// Devices that share a GPU allocate their memory one after another, so that each checks against
/// the memory that is left.
std::unique_ptr<ModelBackend<CudaMath>> backend_with_memory(const TrainingJob& job,
                                                            const TrainingDevice& device, int gpu) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  const cuda::GpuProperties found = cuda::properties_of(gpu);
  check_precision(job.settings.precision, gpu, found);
  check_free_memory(cuda_memory(job, device), gpu, found);
  return std::make_unique<ModelBackend<CudaMath>>(job, device,
                                                  std::make_unique<CudaMath>(job, device, gpu));
}

}  // namespace

int usable_gpus() {
  const int count = cuda::gpu_count();
  if (count > 0) return count;
  throw Error(ErrorKind::Environment, "CUDA",
              {{"", "expected a GPU that this process may use, found none"}});
}

std::unique_ptr<TrainingBackend> make_cuda_backend(const TrainingJob& job,
                                                   const TrainingDevice& device, int gpu) {
  auto backend = backend_with_memory(job, device, gpu);
  // CUDA loads a kernel to a GPU at its first launch, for which it may wait until the GPU is idle.
  // During an iteration the GPU may be running a kernel that waits for a kernel of another GPU.
  backend->warm_up();
  return backend;
}

}  // namespace dapple::exec
