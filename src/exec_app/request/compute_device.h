// What computes a model's layers, or stands for it: cores of this machine, or GPUs.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "dapple/command_line/options.h"
#include "dapple/cuda/memory/tensor.h"
#include "dapple/exec/message/transport.h"
#include "dapple/exec/replay/replay_backend.h"
#include "dapple/exec/train/training_backend.h"
#include "dapple/exec_app/request/gpu_choice.h"
#include "dapple/plan/plan.h"
#include "dapple/schedule/device_schedule.h"
#include "dapple/topology/topology.h"

namespace dapple::exec_app {

struct ComputeDevice {
  enum class Kind { Cpu, Cuda };
  Kind kind = Kind::Cpu;
  cuda::Precision precision = cuda::Precision::Float32;
  bool oversubscribes = false;  // several of the plan's devices may share a GPU

  /// Devices of the plan have GPUs, and links between them, of their own.
  bool has_own_links() const { return kind == Kind::Cuda && !oversubscribes; }
};

/// Of --device and, where a command has them, --precision and --oversubscribe. Throws Error(Usage).
ComputeDevice compute_device(const command_line::Options& options);

/// Has the CPU compute as --kernels says. Throws Error(Usage) where it cannot. Requires: nothing is
/// being computed.
void use_kernels_of(const command_line::Options& options);

/// ", in bfloat16 on GPUs"; nothing on CPUs.
std::string to_text(const ComputeDevice& device);

/// On GPUs as chosen_gpu() says. Throws Error(Environment) where there is none, or as that does.
exec::MakeBackend make_backend_for(const ComputeDevice& device, const GpuShare& share);
exec::MakeReplayBackend make_replay_backend_for(const ComputeDevice& device, const GpuShare& share);

/// Topology and plan must outlive what is made of it.
struct GpuEnds {
  const Topology& topology;
  const Plan& plan;
  GpuShare share;
  std::chrono::nanoseconds timeout = {};
};
/// What carries messages between GPUs over an end between threads or processes; it makes none where
/// all messages pass by that: on CPUs, of a single device, without NCCL, or where devices share
/// GPUs. Throws as make_nccl_transport().
exec::MakeEndOver make_gpu_ends(const ComputeDevice& device, const GpuEnds& ends);

}  // namespace dapple::exec_app
