#include "compute_device.h"

#include <fmt/format.h>

#include <functional>

#include "dapple/command_line/tool.h"
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

/// By a device's place among those of the plan. Where there are too few, throws here and now.
std::function<int(std::size_t)> choose_gpus(const ComputeDevice& device, const GpuShare& share) {
  const auto gpu_of = [share, oversubscribes = device.oversubscribes,
                       usable = usable_gpus()](std::size_t place) {
    return chosen_gpu(share, oversubscribes, place, usable);
  };
  gpu_of(0);
  return gpu_of;
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

std::unique_ptr<Transport> make_gpu_end(const ComputeDevice& device, const GpuEnd& end) {
  if (!device.has_own_links() || !is_built_with_nccl()) return nullptr;
  const DeviceSchedule& own = end.devices[end.place];
  return make_nccl_transport(end.below, end.topology,
                             {.here = own.device,
                              .peers = message_peers(own),
                              .gpu = chosen_gpu(end.share, false, end.place, usable_gpus()),
                              .inbox = message_memory(end.plan, own),
                              .timeout = end.timeout});
}

MakeBackend make_backend_for(const ComputeDevice& device, const GpuShare& share) {
  if (device.kind == ComputeDevice::Kind::Cpu) return make_cpu_backend;
  return [gpu_of = choose_gpus(device, share)](const TrainingJob& job, DeviceIndex own) {
    return make_cuda_backend(job, own, gpu_of(place_of(job, own)));
  };
}

MakeReplayBackend make_replay_backend_for(const ComputeDevice& device, const GpuShare& share) {
  if (device.kind == ComputeDevice::Kind::Cpu) return make_replay_backend;
  return [gpu_of = choose_gpus(device, share)](const ReplayedDevice& own, const ReplayPace& pace) {
    return make_cuda_replay_backend(own, pace, gpu_of(own.place));
  };
}

}  // namespace dapple
