// Attention and transformer blocks as chains of elementary modules, whole or as one rank of a group
// that shares them runs them.
#pragma once

#include <memory>

#include "dapple/nn/module.h"
#include "dapple/nn/shared_layers.h"

namespace dapple::nn {

/// Creates multi-head attention with its projections. Requires: tensor-parallel ranks divide the
/// heads, those of queries and those of keys.
std::unique_ptr<Module> make_attention(const AttentionOperation& operation, const LayerRank& rank);

/// Creates a pre-norm transformer block: attention and feed-forward, each preceded by a norm and
/// bypassed by a residual connection. Requires: as for make_attention(), and tensor-parallel
/// ranks divide the width of the feed-forward, and all that have parts of it the sequence.
std::unique_ptr<Module> make_transformer_block(const TransformerBlockOperation& operation,
                                               const LayerRank& rank);

}  // namespace dapple::nn
