// Assigns GPUs of a host to devices of the plan.
#pragma once

#include <cstddef>
#include <optional>

namespace dapple::exec_app {

/// The part of a plan that one process computes: all of its devices, or one as a rank.
struct GpuShare {
  /// The devices computed on this host, by this process and other ranks.
  std::size_t devices = 1;
  bool is_rank = false;
  /// The rank among those of this host, if known.
  std::optional<int> local_rank = {};
  /// Whether CUDA_VISIBLE_DEVICES says which GPUs the process sees.
  bool is_shown_gpus = false;
};

/// Returns the GPU, counted from zero among the `usable` ones, for the device at a place of the
/// plan's devices. If CUDA_VISIBLE_DEVICES leaves a rank a single GPU, it gets that one; otherwise
/// the GPU's number is the local rank or, if that is unknown, the device's place. If there are too
/// few GPUs, `oversubscribes` assigns them cyclically; without it throws Error(Environment).
/// Requires: usable >= 1.
int chosen_gpu(const GpuShare& share, bool oversubscribes, std::size_t place, int usable);

}  // namespace dapple::exec_app
