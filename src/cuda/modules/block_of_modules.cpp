// Attention and blocks of any form as chains of the same modules as nn's, whole or as one rank runs
// them.
#include <utility>
#include <vector>

#include "cuda/modules/attention.h"
#include "cuda/modules/modules.h"
#include "cuda/modules/shared_modules.h"

namespace dapple::cuda {
namespace {

using Parts = std::vector<std::unique_ptr<DeviceModule>>;

std::unique_ptr<DeviceModule> make_by_columns(LinearOperation operation,
                                              const TensorGroup& tensor) {
  if (tensor.ranks == 1) return make_linear(operation);
  operation.outputs /= tensor.ranks;
  return make_column_parallel(operation, tensor);
}

std::unique_ptr<DeviceModule> make_by_rows(const LinearOperation& operation,
                                           const TensorGroup& tensor) {
  return tensor.ranks == 1 ? make_linear(operation) : make_row_parallel(operation, tensor);
}

std::unique_ptr<DeviceModule> make_norm(NormKind kind, std::int64_t hidden) {
  return kind == NormKind::RmsNorm ? make_rms_norm({hidden}) : make_layer_norm({hidden});
}

std::unique_ptr<DeviceModule> recomputed_if(const DeviceRank& rank, RecomputedPart part,
                                            std::unique_ptr<DeviceModule> module) {
  return rank.layers.recomputes.contains(part) ? make_recomputed(std::move(module))
                                               : std::move(module);
}

std::unique_ptr<DeviceModule> make_feed_forward(const TransformerBlockOperation& operation,
                                                const TensorGroup& tensor) {
  const bool is_gated = operation.activation == FeedForwardKind::SwiGlu;
  Parts parts;
  parts.push_back(
      make_by_columns({operation.hidden, expanded_width_of(operation), operation.bias}, tensor));
  parts.push_back(is_gated ? make_swiglu() : make_gelu());
  parts.push_back(make_by_rows({operation.feed_forward, operation.hidden, operation.bias}, tensor));
  return make_chain(std::move(parts));
}

/// Returns the heads of one rank.
AttentionOperation heads_of_rank(AttentionOperation operation, const TensorGroup& tensor) {
  operation.form.width = head_width_of(operation);
  operation.form.kv_heads = kv_heads_of(operation) / tensor.ranks;
  operation.heads /= tensor.ranks;
  return operation;
}

}  // namespace

std::unique_ptr<DeviceModule> make_attention(const AttentionOperation& operation,
                                             const DeviceRank& rank) {
  const TensorGroup tensor = tensor_group(rank);
  const ContextGroup context = context_group(rank);
  const std::int64_t of_queries = operation.heads * head_width_of(operation);
  const std::int64_t of_keys = kv_heads_of(operation) * head_width_of(operation);
  const AttentionOperation own = heads_of_rank(operation, tensor);
  Parts parts;
  parts.push_back(
      make_by_columns({operation.hidden, of_queries + 2 * of_keys, operation.bias}, tensor));
  if (context.ranks == 1 && has_spread_heads(own)) parts.push_back(make_spread_heads(own));
  parts.push_back(recomputed_if(
      rank, RecomputedPart::CoreAttention,
      context.ranks == 1 ? make_attention_heads(own) : make_context_attention(own, context)));
  parts.push_back(make_by_rows({of_queries, operation.hidden, operation.bias}, tensor));
  return make_chain(std::move(parts));
}

std::unique_ptr<DeviceModule> make_block_of_modules(const TransformerBlockOperation& operation,
                                                    const DeviceRank& rank) {
  Parts attention;
  attention.push_back(make_norm(operation.norm, operation.hidden));
  attention.push_back(make_attention(attention_of(operation), rank));
  Parts feed_forward;
  feed_forward.push_back(make_norm(operation.norm, operation.hidden));
  feed_forward.push_back(
      operation.experts
          ? recomputed_if(rank, RecomputedPart::Experts, make_experts(operation, rank))
          : recomputed_if(rank, RecomputedPart::FeedForward,
                          make_feed_forward(operation, tensor_group(rank))));
  Parts parts;
  parts.push_back(make_residual(make_chain(std::move(attention))));
  parts.push_back(make_residual(make_chain(std::move(feed_forward))));
  return recomputed_if(rank, RecomputedPart::Layer, make_chain(std::move(parts)));
}

}  // namespace dapple::cuda
