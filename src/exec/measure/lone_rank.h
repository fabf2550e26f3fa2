// The first rank of a group whose other ranks are not there, to measure what a rank
// computes and to count what the group would exchange.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "dapple/nn/shared_layers.h"
#include "dapple/profile/collective.h"

namespace dapple::exec {

/// Collectives that leave or repeat the rank's own values in place of those of others.
class LoneRank : public nn::RankGroup {
 public:
  void all_reduce(std::span<float> values) override;
  void all_gather(std::span<const float> own, std::span<float> all) override;
  void reduce_scatter(std::span<float> all, std::span<float> own) override;
  /// As if all ranks sent as much as this one keeps.
  void all_to_all(const std::vector<std::vector<float>>& to,
                  std::vector<std::vector<float>>& from) override;
};

/// The collectives of one layer for every micro-batch.
struct LayerCollectives {
  std::vector<Collective> forward;
  std::vector<Collective> backward;
};

/// Returns the collectives of layer `number` of a model as the ranks of a group run it, by running
/// it once on one sample.
LayerCollectives collectives_of(const std::vector<nn::ModelLayer>& whole, std::size_t number,
                                nn::LayerRank rank);

}  // namespace dapple::exec
