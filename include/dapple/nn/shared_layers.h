// Layers that the ranks of a group share, so that together they compute what the whole layers do,
// up to the order of additions. Collectives within the layers exchange what ranks need of each
// other.
//
// Tensor-parallel ranks hold a part each of the large parameters. Projections of attention and the
// first linear layer of a feed-forward are divided by columns, the linear layers behind them by
// rows; attention by heads; embeddings and the last linear layer by the vocabulary, which is padded
// to a multiple of the ranks. Everything else is whole on every rank. With sequence parallelism
// every rank works there on its part of each sequence only, and keeps and sends only that.
//
// Context-parallel ranks hold whole parameters and work on a part of each sequence in all layers:
// of 2n chunks, rank i of n has chunks i and 2n - 1 - i, so that all have as much to do where
// attention is causal. Attention gathers the keys and values of all ranks. Each rank computes a
// part of every gradient, and the same losses.
//
// Expert-parallel ranks have different positions and different experts: each position's rows go to
// the ranks of its experts and come back. Where several ranks have a part each of every expert,
// they gather the rows that have arrived at them, and sum what they compute of these.
// Tensor-parallel ranks have different positions with sequence parallelism only.
//
// Source: Shoeybi et al. 2019 (Megatron-LM), section 3; Korthikanti et al. 2022, section 4.2.2;
// GShard (Lepikhin et al. 2020), section 3; Dubey et al. 2024 ("The Llama 3 Herd of Models"),
// section 3.3.2.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dapple/nn/model.h"
#include "dapple/nn/routing_margins.h"
#include "dapple/profile/recomputation.h"

namespace dapple::nn {

/// The ranks of a group, seen from one of them. All ranks make the same calls in the same order,
/// each with as many numbers.
class RankGroup {
 public:
  virtual ~RankGroup() = default;
  /// Sums the values over the ranks, in place, to the same bits on every rank.
  virtual void all_reduce(std::span<float> values) = 0;
  /// Sets `all` to the values of all ranks in their order: each has part `rank` of as many parts as
  /// there are ranks, of sizes that differ by one at most. `own` may be that part of `all`.
  virtual void all_gather(std::span<const float> own, std::span<float> all) = 0;
  /// Sums `all` over the ranks, and sets `own` to the rank's part of the sum, of such parts. `all`
  /// is undefined afterwards but for that part, which `own` may be. Requires: the sizes fit.
  virtual void reduce_scatter(std::span<float> all, std::span<float> own) = 0;
  /// Sends `to[r]` to rank r, and sets `from[r]` to what rank r has sent to this one. Requires:
  /// there is one of each for every rank, and `from[r]` has the size of what it becomes, or is
  /// empty if the caller does not know it.
  virtual void all_to_all(const std::vector<std::vector<float>>& to,
                          std::vector<std::vector<float>>& from) = 0;
};

/// A rank of a group, alone by default.
struct GroupRank {
  std::int64_t rank = 0;
  std::int64_t ranks = 1;
  /// In layers, needed by everything but parameters() and output_shape() if there are several
  /// ranks.
  RankGroup* group = nullptr;
};

/// A rank of a tensor-parallel group, and how the group shares layers.
struct TensorRank {
  std::int64_t rank = 0;
  std::int64_t ranks = 1;
  bool is_sequence_parallel = false;
  /// Needed as that of a GroupRank.
  RankGroup* group = nullptr;
};

/// How a rank runs layers.
struct LayerRank {
  TensorRank tensor = {};
  GroupRank context = {};
  GroupRank experts = {};
  /// Among the ranks that have the same experts, and compute a part each of every one of them, for
  /// the positions of all.
  GroupRank expert_tensor = {};
  /// The parts of each transformer block of which only the input is kept, and which are computed
  /// again before their gradients: the whole layer, the heads of attention, the feed-forward, or
  /// the experts with their router.
  RecomputedParts recomputes = {};
  /// Where layers with experts that are whole on this rank note their margins: by layer of a model,
  /// or of a single layer, the first. Nowhere if it is empty.
  std::span<RoutingMargins> margins = {};

  /// Whether the rank shares layers with no other, and keeps all that it computes.
  bool runs_whole_layers() const {
    return tensor.ranks == 1 && context.ranks == 1 && experts.ranks == 1 && recomputes.none();
  }
};

/// The parts of blocks that can be computed again.
inline constexpr RecomputedParts kRecomputable = kPartsOfExecutor;

/// Whether a layer that performs this operation has one of the parts; only blocks have parts.
bool has_any_of(RecomputedParts parts, const Operation& operation);

/// Returns the layers as a rank runs them, with the parts of parameters that it holds, in the
/// order of the whole layers' parameters and with their names. `operation` remains that of the
/// whole layer; the first layer takes, and the last one compares with, whole sequences. Throws
/// Error(BadInput), naming the layer, if the ranks cannot share a layer: heads, the feed-forward's
/// width, the experts or the sequence do not divide; a layer of images, where ranks share or
/// recompute layers; without an embedding as the first layer, where sequences are divided; or,
/// where they are tensor-parallel, a linear layer other than one before the loss, or a loss behind
/// another layer than that. O(layers). Requires: make_model() has made the whole layers; only parts
/// in kRecomputable are computed again.
std::vector<ModelLayer> share_model(const std::vector<ModelLayer>& whole, const LayerRank& rank,
                                    const std::string& source_name);

/// What a rank has of each sample of a layer's output, or of the gradient of it.
struct OutputPart {
  using Range = ParameterPart::Range;

  /// The positions, ascending. A sample that is no sequence has a single one.
  std::vector<Range> positions;
  /// The numbers of each position.
  Range columns;
  /// How many numbers the rank holds of each position: `columns`, and padding behind them.
  std::int64_t width = 0;
  /// The rank's number among the tensor-parallel ranks that have the same part, and how many these
  /// are.
  std::int64_t copy = 0;
  std::int64_t copies = 1;
};

/// Returns what the rank has of a whole layer's output. Requires: share_model() can share the
/// layer, and it is no loss.
OutputPart output_part(const ModelLayer& whole, const LayerRank& rank);

}  // namespace dapple::nn
