#include "nn/transformer_block.h"

#include <utility>
#include <vector>

#include "nn/modules.h"
#include "nn/shared_modules.h"

namespace dapple::nn {
namespace {

using Ranges = std::vector<ParameterPart::Range>;

/// Returns the rank's part of each of some groups of columns, which follow one another.
Ranges parts_of_groups(const std::vector<std::int64_t>& groups, const TensorRank& rank) {
  Ranges parts;
  std::int64_t first = 0;
  for (const std::int64_t columns : groups) {
    const ParameterPart::Range part = part_of_rank(columns, rank);
    parts.push_back({first + part.begin, first + part.end});
    first += columns;
  }
  return parts;
}

std::unique_ptr<Module> make_by_columns(const LinearOperation& operation,
                                        const std::vector<std::int64_t>& groups,
                                        const TensorRank& rank) {
  if (rank.ranks == 1) return make_linear(operation);
  return make_column_parallel(operation, parts_of_groups(groups, rank), rank);
}

std::unique_ptr<Module> make_by_rows(const LinearOperation& operation, const TensorRank& rank) {
  return rank.ranks == 1 ? make_linear(operation) : make_row_parallel(operation, rank);
}

std::unique_ptr<Module> make_norm(NormKind kind, std::int64_t hidden, const TensorRank& rank) {
  return make_replicated(
      kind == NormKind::RmsNorm ? make_rms_norm({hidden}) : make_layer_norm({hidden}), rank);
}

std::unique_ptr<Module> recomputed_if(const LayerRank& rank, RecomputedPart part,
                                      std::unique_ptr<Module> module) {
  return rank.recomputes.contains(part) ? make_recomputed(std::move(module)) : std::move(module);
}

std::unique_ptr<Module> make_feed_forward(const TransformerBlockOperation& operation,
                                          const TensorRank& rank) {
  const std::int64_t hidden = operation.hidden;
  const std::int64_t width = operation.feed_forward;
  const bool is_gated = operation.activation == FeedForwardKind::SwiGlu;
  std::vector<Part> parts;
  parts.push_back(
      {"expand", make_by_columns({hidden, expanded_width_of(operation), operation.bias},
                                 is_gated ? std::vector{width, width} : std::vector{width}, rank)});
  parts.push_back({"", is_gated ? make_swiglu() : make_gelu()});
  parts.push_back({"reduce", make_by_rows({width, hidden, operation.bias}, rank)});
  return make_chain(std::move(parts));
}

/// Returns the heads of one rank.
AttentionOperation heads_of_rank(AttentionOperation operation, const TensorRank& rank) {
  operation.form.width = head_width_of(operation);
  operation.form.kv_heads = kv_heads_of(operation) / rank.ranks;
  operation.heads /= rank.ranks;
  return operation;
}

}  // namespace

std::unique_ptr<Module> make_attention(const AttentionOperation& operation, const LayerRank& rank) {
  const std::int64_t of_queries = operation.heads * head_width_of(operation);
  const std::int64_t of_keys = kv_heads_of(operation) * head_width_of(operation);
  const AttentionOperation own = heads_of_rank(operation, rank.tensor);
  std::vector<Part> parts;
  parts.push_back(
      {"qkv", make_by_columns({operation.hidden, of_queries + 2 * of_keys, operation.bias},
                              {of_queries, of_keys, of_keys}, rank.tensor)});
  if (operation.form.rotary_base) parts.push_back({"", make_rotary(own, rank.context)});
  parts.push_back({"", recomputed_if(rank, RecomputedPart::CoreAttention,
                                     make_attention_heads(own, rank.context))});
  parts.push_back(
      {"projection", make_by_rows({of_queries, operation.hidden, operation.bias}, rank.tensor)});
  return make_chain(std::move(parts));
}

std::unique_ptr<Module> make_transformer_block(const TransformerBlockOperation& operation,
                                               const LayerRank& rank) {
  const std::int64_t hidden = operation.hidden;
  std::vector<Part> attention;
  attention.push_back({"norm1", make_norm(operation.norm, hidden, rank.tensor)});
  attention.push_back({"attention", make_attention(attention_of(operation), rank)});
  std::vector<Part> behind_norm;
  behind_norm.push_back({"norm2", make_norm(operation.norm, hidden, rank.tensor)});
  behind_norm.push_back(
      {"", operation.experts
               ? recomputed_if(rank, RecomputedPart::Experts,
                               rank.experts.ranks > 1 ? make_expert_parallel(operation, rank)
                                                      : make_experts(operation, rank))
               : recomputed_if(rank, RecomputedPart::FeedForward,
                               make_feed_forward(operation, rank.tensor))});
  std::vector<Part> parts;
  parts.push_back({"", make_residual(make_chain(std::move(attention)))});
  parts.push_back({"", make_residual(make_chain(std::move(behind_norm)))});
  std::int64_t sequence = operation.sequence / rank.context.ranks;
  if (rank.tensor.is_sequence_parallel) sequence /= rank.tensor.ranks;
  return recomputed_if(rank, RecomputedPart::Layer,
                       make_chain(std::move(parts), {sequence, hidden}));
}

}  // namespace dapple::nn
