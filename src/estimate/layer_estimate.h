// The sums over the parts of a layer in one form of parallelism, and the layer that they make.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/profile/collective.h"
#include "dapple/profile/model_profile.h"
#include "dapple/profile/recomputation.h"
#include "estimate/division.h"
#include "estimate/work.h"

namespace dapple::estimate {

/// What recomputing a part of a layer spares and costs.
struct Recomputable {
  /// Whether the layer has the part.
  bool exists = false;
  /// The bytes per sample that are kept for it otherwise.
  Wide kept = 0;
  Work work;
  /// What the backward sends besides.
  std::vector<Collective> collectives;
};

struct LayerEstimate {
  Work forward;
  Work backward;
  /// The part of the backward that makes gradients of weights.
  Work weight_gradient;
  /// The core of each attention, in the forward and in the backward, beside which send-receives
  /// pass; empty where there are no such send-receives.
  std::vector<Work> forward_cores = {};
  std::vector<Work> backward_cores = {};
  /// Numbers of parameters on a device, and those of them that belong to routed experts.
  Wide parameters = 0;
  Wide expert_parameters = 0;
  /// Bytes per sample: of all that is kept unless a part of `parts` is recomputed, of workspace and
  /// of the output.
  Wide kept = 0;
  Wide workspace = 0;
  Wide output = 0;
  /// How often as many kernels as in a forward are launched in the backward.
  std::int64_t launches_of_backward = 2;
  /// What a whole layer that is recomputed keeps.
  Wide input = 0;
  std::vector<Collective> forward_collectives;
  std::vector<Collective> backward_collectives;
  /// By RecomputedPart; that of the whole layer is unused.
  std::array<Recomputable, std::size(kRecomputedParts)> parts = {};

  Recomputable& part(RecomputedPart which) { return parts[static_cast<std::size_t>(which)]; }
  const Recomputable& part(RecomputedPart which) const {
    return parts[static_cast<std::size_t>(which)];
  }
  /// Adds work to the forward, and twice as much to the backward.
  void add(const Work& work) {
    forward += work;
    backward += 2 * work;
  }
  /// Adds products by weights, of which half of the backward is for the gradient of the weights.
  void add_products(const Work& work) {
    add(work);
    weight_gradient += work;
  }
  void add_product(const Product& product, std::int64_t bytes_of_number) {
    add_products(work_of(product, bytes_of_number));
  }
};

/// Adds attention: of tokens to each other, or of a decoder to its encoder.
void add_attention(const AttentionShape& shape, bool is_to_encoder, const Division& division,
                   LayerEstimate& layer);

/// Add a dense feed-forward layer, and experts.
void add_feed_forward(const FeedForwardShape& shape, const Division& division,
                      LayerEstimate& layer);
void add_experts(const ExpertsShape& shape, const Division& division, LayerEstimate& layer);

/// Returns a whole block, the embedding and the head.
LayerEstimate block_of(const BlockShape& shape, const Division& division);
LayerEstimate embedding_of(const EmbeddingShape& shape, const Division& division);
LayerEstimate head_of(const HeadShape& shape, const Division& division);

/// Adds what a part needs over the tensor ranks that has a whole hidden tensor behind it, and one
/// of `gathered` bytes per sample in front: an all-reduce, or an all-gather, whose result may be
/// kept, and a reduce-scatter, in both directions.
void add_tensor_collectives(const Division& division, Wide gathered, LayerEstimate& layer);

/// Returns the layer with those of the parts recomputed that it has (docs/estimate.md, section 8).
LayerEstimate recomputed(const LayerEstimate& layer, RecomputedParts parts);

/// Returns the measurements that state the layer's times exactly.
std::vector<Measurement> measurements_of(const LayerEstimate& layer, const Rates& rates);

}  // namespace dapple::estimate
