// What computes a model's layers: cores of this machine, or GPUs.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "dapple/command_line/options.h"
#include "dapple/cuda/tensor.h"
#include "dapple/exec/training_backend.h"
#include "dapple/exec/transport.h"
#include "dapple/topology/topology.h"

namespace dapple {

struct ComputeDevice {
  enum class Kind { Cpu, Cuda };
  Kind kind = Kind::Cpu;
  cuda::Precision precision = cuda::Precision::Float32;
  bool oversubscribes = false;  // several of the plan's devices may share a GPU
};

/// Of --device, --precision and, where a command has it, --oversubscribe. Throws Error(Usage).
ComputeDevice compute_device(const Options& options);

/// ", in bfloat16 on GPUs"; nothing on CPUs.
std::string to_text(const ComputeDevice& device);

/// GPUs in the order of the plan's devices, from the first again where these are more. `here`: how
/// many of them this process and others like it on this host compute. Throws Error(Environment)
/// where there is no GPU, or fewer than devices that may not share one.
MakeBackend make_backend_for(const ComputeDevice& device, std::size_t here);

/// What carries messages between GPUs over an end between processes; null where all messages pass
/// by that: on CPUs, without NCCL, or where devices share GPUs. Throws as make_nccl_transport().
struct GpuEnd {
  Transport& below;
  const Topology& topology;
  DeviceIndex own;
  std::chrono::nanoseconds timeout;
};
std::unique_ptr<Transport> make_gpu_end(const ComputeDevice& device, const TrainingJob& job,
                                        const GpuEnd& end);

}  // namespace dapple
