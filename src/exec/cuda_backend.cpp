#include "dapple/exec/cuda_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "cuda_math.h"
#include "dapple/core/error.h"
#include "model_backend.h"

namespace dapple {
namespace {

std::int64_t numbers_per_sample(const nn::ModelLayer& layer) {
  return std::max(nn::count_of(layer.input), nn::count_of(layer.output));
}

/// Every allocation is rounded up, and memory given back leaves gaps.
Bytes with_gaps(Bytes size) {
  constexpr std::int64_t kShare = 16;
  return size + Bytes{size.count / kShare};
}

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

CudaMemory cuda_memory(const TrainingJob& job, DeviceIndex device) {
  // A gradient comes in, one goes out, and what is handed over waits on either side.
  constexpr std::int64_t kTensorsOnTheirWay = 6;
  const cuda::Precision precision = job.settings.precision;
  const std::int64_t size = cuda::size_of(cuda::type_of(precision));
  Bytes copies;
  Bytes of_layer;
  std::int64_t largest = 0;
  for (std::size_t s = 0; s < job.plan.stages.size(); ++s) {
    const auto own = local_stage(job, index_at<StageIndex>(s), device);
    if (!own) continue;
    if (precision != cuda::Precision::Float32) {
      copies += Bytes{static_cast<std::int64_t>(StageLayout(job, own->index).size()) * size};
    }
    for (std::int32_t number = own->plan.layers.begin; number < own->plan.layers.end; ++number) {
      const nn::ModelLayer& layer = job.layer(number);
      const std::int64_t samples = own->samples.size();
      of_layer = std::max(
          of_layer,
          cuda::workspace_of(layer.operation, with_samples(samples, layer.input), precision));
      largest = std::max(largest, samples * numbers_per_sample(layer));
    }
  }
  CudaMemory memory{.planned = job.memory_of(device), .workspace = copies + of_layer};
  memory.workspace += Bytes{kTensorsOnTheirWay * largest * size};
  memory.workspace = with_gaps(memory.total()) - memory.planned;
  return memory;
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
