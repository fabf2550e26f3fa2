// What computes a model's layers, or replays them: cores of this machine, or GPUs.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "dapple/command_line/options.h"
#include "dapple/cuda/memory/tensor.h"
#include "dapple/exec/message/message_memory.h"
#include "dapple/exec/message/transport.h"
#include "dapple/exec/replay/replay_backend.h"
#include "dapple/exec/train/training_backend.h"
#include "dapple/exec_app/request/gpu_choice.h"
#include "dapple/schedule/device_schedule.h"
#include "dapple/topology/topology.h"

namespace dapple::exec_app {

struct ComputeDevice {
  enum class Kind { Cpu, Cuda };
  Kind kind = Kind::Cpu;
  cuda::Precision precision = cuda::Precision::Float32;
  /// Whether several of the plan's devices may share a GPU.
  bool oversubscribes = false;
  /// The CPU kernels to compute with; empty for those in use.
  std::string kernels = {};

  /// Whether each device of the plan has a GPU of its own, with real links between them.
  bool has_own_links() const { return kind == Kind::Cuda && !oversubscribes; }
};

/// Returns the row of --device, --oversubscribe, --precision, --kernels or --timeout.
command_line::OptionSpec device_option(const std::string& text);
command_line::OptionSpec oversubscribe_option();
command_line::OptionSpec precision_option();
command_line::OptionSpec kernels_option();
command_line::OptionSpec timeout_option();

/// Reads --device and, if the command has them, --precision, --kernels and --oversubscribe. Throws
/// Error(Usage), also if the CPU does not support the kernels.
ComputeDevice compute_device(const command_line::Options& options);

/// Selects the CPU kernels. Requires: nothing is being computed.
void use_kernels_of(const ComputeDevice& device);

/// Returns ", in bf16 on GPUs", with the device's precision, or an empty text for a CPU.
std::string to_text(const ComputeDevice& device);

/// Return factories of backends; GPUs are assigned by chosen_gpu(). Throw Error(Environment) if
/// there is no GPU, or as chosen_gpu() does.
exec::MakeBackend make_backend_for(const ComputeDevice& device, const GpuShare& share);
exec::MakeReplayBackend make_replay_backend_for(const ComputeDevice& device, const GpuShare& share);

/// Returns the connections of a device, given its schedule.
using ConnectionsOf = std::function<exec::DeviceConnections(const DeviceSchedule& device)>;

/// What transports between GPUs need. The topology must outlive what make_gpu_ends() returns.
struct GpuEnds {
  const Topology& topology;
  ConnectionsOf connections_of;
  GpuShare share;
  std::chrono::nanoseconds timeout = {};
};
/// Returns a factory of NCCL transports between GPUs on top of the transport between threads or
/// processes. It makes none if all messages use the latter: on CPUs, with a single device, without
/// NCCL, or if devices share GPUs. The factory throws as make_nccl_transport() does.
exec::MakeEndOver make_gpu_ends(const ComputeDevice& device, const GpuEnds& ends);

}  // namespace dapple::exec_app
