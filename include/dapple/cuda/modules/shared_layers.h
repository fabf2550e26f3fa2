// Layers that the ranks of a group share on GPUs, and layers of which parts are computed again: the
// counterparts of nn's (see nn/shared_layers.h), which say what each rank holds and computes, and
// define parameters and shapes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dapple/cuda/modules/module.h"
#include "dapple/nn/shared_layers.h"
#include "dapple/profile/recomputation.h"

namespace dapple::cuda {

/// The ranks of a group, seen from one of them: the counterpart of nn::RankGroup for numbers in the
/// memory of the rank's device. All ranks make the same calls in the same order, with as many
/// numbers of the same type unless said otherwise. What is called is enqueued on the device's
/// compute stream; the host may wait for other ranks to come to the same call.
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;
  /// Sums the numbers over the ranks, in place and in single precision, to the same bits on every
  /// rank.
  virtual void all_reduce(View values) = 0;
  /// Sets `all` to the numbers of all ranks, divided as nn::RankGroup says. `own` may be the rank's
  /// part of `all`.
  virtual void all_gather(View own, View all) = 0;
  /// Sums `all` over the ranks in single precision, and sets `own` to the rank's part of the sum.
  /// `all` is undefined afterwards but for that part, which `own` may be.
  virtual void reduce_scatter(View all, View own) = 0;
  /// Sends `to[r]` to rank r, and returns what each rank has sent to this one. These numbers are on
  /// the host, which waits for those of other ranks. Requires: every rank sends as many to each.
  virtual std::vector<std::vector<std::int64_t>> exchange_counts(
      const std::vector<std::vector<std::int64_t>>& to) = 0;
  /// Sends `to[r]` to rank r, and sets `from[r]` to what rank r has sent to this one. Any may be
  /// empty. Requires: both sides of a message know its size, and none of `from` overlaps another of
  /// these arrays.
  virtual void all_to_all(std::span<const View> to, std::span<const View> from) = 0;
};

/// How a rank runs layers on a GPU. Groups are needed where there are several ranks.
struct DeviceRank {
  /// Only the numbers of ranks are used of its groups.
  nn::LayerRank layers = {};
  DeviceGroup* tensor = nullptr;
  DeviceGroup* context = nullptr;
  DeviceGroup* experts = nullptr;
  DeviceGroup* expert_tensor = nullptr;
};

/// Makes the modules of layers that run one after another, as a rank runs them; layer i computes
/// `recomputed[i]` again. The groups must outlive them. Requires: nn::share_model() shares the
/// layers.
std::vector<std::unique_ptr<DeviceModule>> make_shared_modules(
    std::span<const Operation> operations, std::span<const RecomputedParts> recomputed,
    const DeviceRank& rank, Precision precision);

/// Whether a block runs as one module whose kernels are fused, and not as single kernels, each of
/// which rounds what it passes on.
bool is_fused(const TransformerBlockOperation& operation, const nn::LayerRank& rank);

/// Returns an upper bound like workspace_of() for a layer as a rank runs it, given the shape of the
/// whole layer's input: with sequences that are gathered or summed, what is sent of them and, where
/// parts are computed again, what these keep meanwhile.
Bytes workspace_of(const Operation& whole, const nn::Shape& input, const nn::LayerRank& rank,
                   Precision precision);

}  // namespace dapple::cuda
