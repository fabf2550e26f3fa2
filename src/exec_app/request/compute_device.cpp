#include "exec_app/request/compute_device.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "dapple/command_line/tool.h"
#include "dapple/exec/gpu/cuda_backend.h"
#include "dapple/exec/nccl/nccl_transport.h"
#include "dapple/exec/train/cpu_backend.h"
#include "dapple/nn/kernel_choice.h"

namespace dapple::exec_app {
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

/// Returns the index of a device among those of the plan or, where these are groups, among all
/// ranks of them.
std::size_t place_of(const exec::TrainingJob& job, const exec::TrainingDevice& own) {
  std::size_t place = 0;
  while (job.devices[place].device != own.device) ++place;
  return place * static_cast<std::size_t>(job.ranks()) + static_cast<std::size_t>(own.number);
}

/// Returns a function from a device's place among those of the plan to its GPU. Throws at once if
/// there are too few GPUs.
std::function<int(std::size_t)> choose_gpus(const ComputeDevice& device, const GpuShare& share) {
  // Gives each stream of a device and of its peers a hardware queue of its own: streams that share
  // a queue would wait for each other. CUDA reads the variable when it is first called.
  constexpr int kOnlyIfUnset = 0;
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", kOnlyIfUnset);
  const auto gpu_of = [share, oversubscribes = device.oversubscribes,
                       usable = exec::usable_gpus()](std::size_t place) {
    return chosen_gpu(share, oversubscribes, place, usable);
  };
  gpu_of(0);
  return gpu_of;
}

}  // namespace

command_line::OptionSpec device_option(const std::string& text) {
  return {.name = "device",
          .value = "KIND",
          .choices = {"cpu", "cuda"},
          .text = text,
          .default_value = "cpu"};
}

command_line::OptionSpec oversubscribe_option() {
  return {.name = "oversubscribe", .text = "Let several devices of the plan share a GPU."};
}

command_line::OptionSpec precision_option() {
  return {.name = "precision",
          .value = "KIND",
          .choices = {"fp32", "bf16", "fp16"},
          .text = "Compute on GPUs in {}.",
          .default_value = "fp32",
          .details = "CPUs compute in fp32 only."};
}

command_line::OptionSpec kernels_option() {
  return {.name = "kernels",
          .value = "KIND",
          .choices = {"avx512", "avx2", "baseline", "portable"},
          .text = "Use the CPU kernels {}.",
          .default_value = "fastest",
          .details = "The default is the fastest that the CPU can run."};
}

command_line::OptionSpec timeout_option() {
  return {.name = "timeout",
          .value = "SECONDS",
          .text = "Wait at most SECONDS for another device.",
          .default_value = "30"};
}

ComputeDevice compute_device(const command_line::Options& options) {
  ComputeDevice device{.oversubscribes = options.has("oversubscribe")};
  if (options.has("precision")) device.precision = precision_of(options.choice("precision"));
  if (options.has("kernels")) {
    const std::vector<std::string_view> names = nn::kernel_names();
    device.kernels = options.choice("kernels", {names.begin(), names.end()});
  }
  if (options.choice("device") == "cuda") {
    device.kind = ComputeDevice::Kind::Cuda;
    return device;
  }
  if (device.precision != cuda::Precision::Float32) {
    throw command_line::usage_error(
        "--precision", fmt::format("a CPU computes in fp32 only; {} needs --device cuda",
                                   name_of(device.precision)));
  }
  if (device.oversubscribes) {
    throw command_line::usage_error("--oversubscribe", "needs --device cuda");
  }
  return device;
}

void use_kernels_of(const ComputeDevice& device) {
  if (!device.kernels.empty()) nn::use_kernels(device.kernels);
  if (device.kind == ComputeDevice::Kind::Cpu) {
    spdlog::info("computes by the {} kernels", nn::kernels_in_use());
  }
}

std::string to_text(const ComputeDevice& device) {
  if (device.kind == ComputeDevice::Kind::Cpu) return "";
  return fmt::format(", in {} on GPUs", name_of(device.precision));
}

exec::MakeEndOver make_gpu_ends(const ComputeDevice& device, const GpuEnds& ends) {
  return [device, ends](exec::Transport& below, const std::vector<DeviceSchedule>& devices,
                        std::size_t place) -> std::unique_ptr<exec::Transport> {
    const bool has_links = device.has_own_links() && devices.size() > 1;
    if (!has_links || !exec::is_built_with_nccl()) return nullptr;
    const DeviceSchedule& own = devices[place];
    return exec::make_nccl_transport(
        below, ends.topology,
        {.here = own.device,
         .connections = ends.connections_of(own),
         .gpu = chosen_gpu(ends.share, false, place, exec::usable_gpus()),
         .timeout = ends.timeout});
  };
}

exec::MakeBackend make_backend_for(const ComputeDevice& device, const GpuShare& share) {
  if (device.kind == ComputeDevice::Kind::Cpu) return exec::make_cpu_backend;
  return [gpu_of = choose_gpus(device, share)](const exec::TrainingJob& job,
                                               const exec::TrainingDevice& own) {
    return exec::make_cuda_backend(job, own, gpu_of(place_of(job, own)));
  };
}

exec::MakeReplayBackend make_replay_backend_for(const ComputeDevice& device,
                                                const GpuShare& share) {
  if (device.kind == ComputeDevice::Kind::Cpu) return exec::make_replay_backend;
  return [gpu_of = choose_gpus(device, share)](const exec::ReplayedDevice& own,
                                               const exec::ReplayPace& pace) {
    return exec::make_cuda_replay_backend(own, pace, gpu_of(own.place));
  };
}

}  // namespace dapple::exec_app
