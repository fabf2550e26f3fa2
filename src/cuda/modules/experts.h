// What mixtures of experts consist of on a GPU, whole or shared by ranks: the counterpart of
// nn/experts.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dapple/cuda/modules/module.h"
#include "dapple/cuda/modules/shared_layers.h"

namespace dapple::cuda {

/// Returns the rows of some experts with padding behind those of each (padded_rows_of()).
std::int64_t padded_rows_of(std::span<const std::int64_t> counts);

/// The feed-forwards of some experts, as far as a rank computes each of them, on rows of which
/// expert e has the next padded_rows_of(counts[e]). Rows of padding are zeros throughout.
class DeviceFeedForwards {
 public:
  /// `width` numbers of each expert are behind its activation.
  DeviceFeedForwards(std::int64_t hidden, std::int64_t width, FeedForwardKind activation);

  /// All experts' matrices: the working copies, or the sums of their gradients.
  struct Weights {
    View expand;  // [experts, hidden, expanded]
    View reduce;  // [experts, width, hidden]
  };
  struct Gradients {
    DeviceTensor of_rows;
    /// The product of each row's output with the gradient of it, in single precision.
    DeviceTensor products;
    DeviceTensor of_expanded;
  };

  /// Returns the output for each row, and the activation's output, which the backward needs.
  DeviceTensor forward(Device& device, const Weights& weights, const DeviceTensor& rows,
                       std::span<const std::int64_t> counts, DeviceTensor& activated,
                       DeviceStash& of_activation) const;
  Gradients backward(Device& device, const Weights& weights, const DeviceTensor& of_output,
                     std::span<const std::int64_t> counts, const DeviceTensor& activated,
                     DeviceStash& of_activation) const;

  /// The rows, what was computed of them, and the gradients.
  struct Factors {
    const DeviceTensor& rows;
    const DeviceTensor& activated;
    const DeviceTensor& of_expanded;
    const DeviceTensor& of_output;
  };
  void add_weight_gradients(Device& device, const Factors& factors,
                            std::span<const std::int64_t> counts, const Weights& sums) const;

 private:
  std::int64_t hidden_;
  std::int64_t width_;
  std::int64_t expanded_;
  std::unique_ptr<DeviceModule> activation_;
};

/// How entries' rows pass between the rank of their position and those of their experts, of which
/// each has as many. Where ranks share experts, each computes a part of every one for the rows that
/// have arrived at any of them, and what they compute of a row is summed in single precision.
class ExpertExchange {
 public:
  /// The ranks are those of a whole layer with so many experts.
  ExpertExchange(const DeviceRank& rank, std::int64_t experts)
      : ranks_(rank.layers.experts.ranks),
        experts_(experts / ranks_),
        group_(rank.experts),
        sharing_(rank.layers.expert_tensor),
        sharing_group_(rank.expert_tensor) {}

  /// The entries of each expert of all ranks, and the rows that arrive for each expert of this one
  /// from each rank, rank by rank, at the first of those that share experts, then at the others.
  struct Counts {
    std::span<const std::int64_t> entries;
    std::span<const std::int64_t> arrivals;
  };

  /// Returns the arrivals, given the entries.
  std::vector<std::int64_t> exchange_counts(std::span<const std::int64_t> entries) const;
  /// Returns the rows of each of the rank's experts.
  std::vector<std::int64_t> rows_of_experts(std::span<const std::int64_t> arrivals) const;
  /// Returns, for each row of the rank's experts with padding, its number among all that arrive
  /// rank by rank; -1 for padding.
  DeviceTensor places_of_arrivals(Device& device, std::span<const std::int64_t> arrivals) const;

  /// Returns the rows of the rank's experts for the entries of all ranks, which are in the order of
  /// experts, or back.
  DeviceTensor to_experts(Device& device, const DeviceTensor& entries, const Counts& counts,
                          const DeviceTensor& places) const;
  DeviceTensor to_positions(Device& device, const DeviceTensor& rows, const Counts& counts,
                            const DeviceTensor& places) const;

 private:
  std::vector<View> parts_by_rank(const DeviceTensor& rows,
                                  std::span<const std::int64_t> counts) const;
  std::span<const std::int64_t> arrivals_at(const Counts& counts, std::int64_t sharing) const;
  std::vector<View> parts_by_sharing(const DeviceTensor& rows, const Counts& counts) const;
  DeviceTensor gathered(Device& device, DeviceTensor own, const Counts& counts) const;
  DeviceTensor summed(Device& device, DeviceTensor all, const Counts& counts) const;

  std::int64_t ranks_;
  std::int64_t experts_;
  DeviceGroup* group_;
  nn::GroupRank sharing_;
  DeviceGroup* sharing_group_;
};

}  // namespace dapple::cuda
