#include "compute_device.h"

#include <fmt/format.h>

#include "dapple/command_line/tool.h"
#include "dapple/core/error.h"
#include "dapple/exec/cpu_backend.h"
#include "dapple/exec/cuda_backend.h"
#include "dapple/exec/message_memory.h"
#include "dapple/exec/nccl_transport.h"

namespace dapple {
namespace {

cuda::Precision precision_of(const std::string& name) {
  if (name == "bf16") return cuda::Precision::BFloat16;
  if (name == "fp16") return cuda::Precision::Float16;
  return cuda::Precision::Float32;
}

const char* name_of(cuda::Precision precision) {
  switch (precision) {
    case cuda::Precision::BFloat16:
      return "bf16";
    case cuda::Precision::Float16:
      return "fp16";
    case cuda::Precision::Float32:
      break;
  }
  return "fp32";
}

/// The place of a device among those of the plan.
std::size_t place_of(const TrainingJob& job, DeviceIndex device) {
  std::size_t place = 0;
  while (job.devices[place].device != device) ++place;
  return place;
}

}  // namespace

ComputeDevice compute_device(const Options& options) {
  ComputeDevice device{
      .precision = precision_of(options.choice("precision", {"fp32", "bf16", "fp16"})),
      .oversubscribes = options.has("oversubscribe")};
  if (options.choice("device", {"cpu", "cuda"}) == "cuda") {
    device.kind = ComputeDevice::Kind::Cuda;
    return device;
  }
  if (device.precision != cuda::Precision::Float32) {
    throw usage_error("--precision",
                      fmt::format("expected fp32, the only one of a CPU, or --device "
                                  "cuda beside it, got {}",
                                  name_of(device.precision)));
  }
  if (device.oversubscribes) {
    throw usage_error("--oversubscribe", "expected --device cuda beside it: it is about GPUs");
  }
  return device;
}

std::string to_text(const ComputeDevice& device) {
  if (device.kind == ComputeDevice::Kind::Cpu) return "";
  return fmt::format(", in {} on GPUs", name_of(device.precision));
}

std::unique_ptr<Transport> make_gpu_end(const ComputeDevice& device, const TrainingJob& job,
                                        const GpuEnd& end) {
  const bool is_on_own_gpu = device.kind == ComputeDevice::Kind::Cuda && !device.oversubscribes;
  if (!is_on_own_gpu || !is_built_with_nccl()) return nullptr;
  const std::size_t place = place_of(job, end.own);
  const DeviceSchedule& schedule = job.devices[place];
  return make_nccl_transport(
      end.below, end.topology,
      {.here = end.own,
       .peers = message_peers(schedule),
       .gpu = static_cast<int>(place % static_cast<std::size_t>(usable_gpus())),
       .inbox = message_memory(job.plan, schedule),
       .timeout = end.timeout});
}

MakeBackend make_backend_for(const ComputeDevice& device, std::size_t here) {
  if (device.kind == ComputeDevice::Kind::Cpu) return make_cpu_backend;
  const auto gpus = static_cast<std::size_t>(usable_gpus());
  if (here > gpus && !device.oversubscribes) {
    throw Error(ErrorKind::Environment, "CUDA",
                {{"", fmt::format("expected {} GPUs, one for each device of the plan, got {}; with "
                                  "--oversubscribe devices share them",
                                  here, gpus)}});
  }
  return [gpus](const TrainingJob& job, DeviceIndex own) {
    return make_cuda_backend(job, own, static_cast<int>(place_of(job, own) % gpus));
  };
}

}  // namespace dapple
