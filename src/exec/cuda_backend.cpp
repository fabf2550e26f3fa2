#include "dapple/exec/cuda_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "cuda_math.h"
#include "dapple/core/error.h"
#include "model_backend.h"

namespace dapple {
namespace {

void check_free_memory(const CudaMemory& memory, int gpu) {
  const cuda::GpuProperties found = cuda::properties_of(gpu);
  if (memory.total() <= found.free_memory) return;
  throw Error(
      ErrorKind::Environment, fmt::format("GPU {}", gpu),
      {{"", fmt::format("expected {} bytes of free memory, {} by the plan's memory model and "
                        "{} of workspace, got {} of {} on {}",
                        memory.total().count, memory.planned.count, memory.workspace.count,
                        found.free_memory.count, found.memory.count, found.name)}});
}

}  // namespace

int usable_gpus() {
  const int count = cuda::gpu_count();
  if (count > 0) return count;
  throw Error(ErrorKind::Environment, "CUDA",
              {{"", "expected a GPU that this process may use, found none"}});
}

std::unique_ptr<TrainingBackend> make_cuda_backend(const TrainingJob& job, DeviceIndex device,
                                                   int gpu) {
  // Devices that share a GPU take their memory one after another, so that each is told what is
  // left.
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  check_free_memory(cuda_memory(job, device), gpu);
  return std::make_unique<ModelBackend<CudaMath>>(job, device,
                                                  std::make_unique<CudaMath>(job, device, gpu));
}

}  // namespace dapple
