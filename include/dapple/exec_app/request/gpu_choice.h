// Which of a host's GPUs a device of the plan computes on.
#pragma once

#include <cstddef>
#include <optional>

namespace dapple::exec_app {

/// What is known of a process that computes devices of the plan: all of them, or one, as a rank.
struct GpuShare {
  std::size_t devices = 1;  // computed on this host, by it and others like it
  bool is_rank = false;
  std::optional<int> local_rank = {};  // among the ranks of this host, where that is known
  bool is_shown_gpus = false;          // CUDA_VISIBLE_DEVICES says which GPUs it sees
};

/// The number of a GPU, from zero, among the `usable` ones, for the device with its place among the
/// plan's. A rank that is shown a single GPU has that; else its local rank is the GPU's number.
/// Without one, devices take the GPUs in their order. Where there are too few, `oversubscribes` has
/// them begin again from the first. Throws Error(Environment) without it. Requires: usable >= 1.
int chosen_gpu(const GpuShare& share, bool oversubscribes, std::size_t place, int usable);

}  // namespace dapple::exec_app
