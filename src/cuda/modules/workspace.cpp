#include <algorithm>
#include <variant>

#include "cuda/kernels/layers/cross_entropy.h"
#include "cuda/kernels/layers/layer_norm.h"
#include "cuda/kernels/layers/patches.h"
#include "cuda/modules/attention.h"
#include "dapple/core/quantity.h"
#include "dapple/cuda/modules/module.h"
#include "dapple/cuda/modules/shared_layers.h"

namespace dapple::cuda {
namespace {

/// The workspace of products, with an allowance for partial sums and scalars.
constexpr std::int64_t kOfProducts = kProductWorkspace.count + (std::int64_t{8} << 20);
constexpr std::int64_t kWidestGap = 8;  // behind a row, in numbers
constexpr std::int64_t kSinglePrecision = size_of(Type::Float32);
constexpr std::int64_t kEntriesOfPadding = 8;  // at least, for each row of padding

/// Returns an upper bound on the numbers of the rows of a block's experts that are kept and that
/// are there for a moment, for so many entries: rows, activations and their gradients, with
/// padding, as they come from and go to other ranks, and copies of what is sent.
std::int64_t numbers_of_experts(const TransformerBlockOperation& operation, std::int64_t entries) {
  constexpr std::int64_t kOfHidden = 8;
  constexpr std::int64_t kOfWide = 3;
  constexpr std::int64_t kSingle = 6;  // places, order and products
  const std::int64_t wide = expanded_width_of(operation) + operation.feed_forward;
  const std::int64_t padded = entries + entries / kEntriesOfPadding;
  return padded * (kOfHidden * operation.hidden + kOfWide * wide + kSingle);
}

struct WorkspaceOf {
  const nn::Shape& input;
  std::int64_t number;  // bytes of one number

  std::int64_t rows(std::int64_t columns) const { return nn::count_of(input) / columns; }

  /// The library sums the gradients of queries in single precision and keeps one or two numbers for
  /// each row of scores.
  std::int64_t of_heads(const AttentionOperation& operation) const {
    const std::int64_t width = head_width_of(operation);
    return rows(operation.hidden) * operation.heads * (width + 4) * kSinglePrecision;
  }

  /// Queries, keys and values, or their gradients, before and after they are spread, with the
  /// angles of rotary positions, which are fewer numbers than their queries.
  std::int64_t of_spread_heads(const AttentionOperation& operation) const {
    if (!has_spread_heads(operation)) return 0;
    const std::int64_t columns = operation.heads + 2 * kv_heads_of(operation);
    return rows(operation.hidden) * head_width_of(operation) *
           (columns * number + operation.heads * kSinglePrecision);
  }

  /// The rows of entries, and scores with their gradients.
  std::int64_t of_experts(const TransformerBlockOperation& operation) const {
    if (!operation.experts) return 0;
    const std::int64_t positions = rows(operation.hidden);
    const std::int64_t entries = positions * operation.experts->per_token;
    return numbers_of_experts(operation, entries) * number +
           positions * (2 * operation.experts->count + 2 * operation.hidden) * kSinglePrecision;
  }

  /// A copy of what enters each residual connection, and gradients of the backward.
  std::int64_t of_block_of_modules(const TransformerBlockOperation& operation) const {
    const std::int64_t wide = expanded_width_of(operation) + operation.feed_forward;
    return (*this)(attention_of(operation)) + (*this)(LayerNormOperation{operation.hidden}) +
           rows(operation.hidden) * (3 * operation.hidden + wide + kWidestGap) * number +
           of_experts(operation);
  }

  template <class Kind>
  std::int64_t operator()(const Kind&) const {
    return 0;
  }
  /// Outputs, or their gradients, with gaps behind the rows.
  std::int64_t operator()(const LinearOperation& operation) const {
    return rows(operation.inputs) * (operation.outputs + kWidestGap) * number;
  }
  /// Partial sums of the gradients of scale and shift over parts of the rows.
  std::int64_t operator()(const LayerNormOperation& operation) const {
    const std::int64_t parts = (rows(operation.hidden) + kRowsOfPart - 1) / kRowsOfPart;
    return parts * 2 * operation.hidden * kSinglePrecision;
  }
  std::int64_t operator()(const RmsNormOperation& operation) const {
    return (*this)(LayerNormOperation{operation.hidden});
  }
  std::int64_t operator()(const AttentionOperation& operation) const {
    return of_heads(operation) + of_spread_heads(operation) +
           4 * rows(operation.hidden) *
               std::max(operation.hidden, operation.heads * head_width_of(operation)) * number;
  }
  /// Gradients of the backward that are not returned, and old ones next to their replacements.
  std::int64_t operator()(const TransformerBlockOperation& operation) const {
    if (!is_gpt2_block(operation)) return of_block_of_modules(operation);
    const std::int64_t widest = std::max(3 * operation.hidden, operation.feed_forward);
    return of_heads(attention_of(operation)) +
           rows(operation.hidden) * (2 * operation.hidden + widest) * number;
  }
  std::int64_t operator()(const ConvolutionOperation& operation) const {
    return operation.in_channels * operation.kernel * operation.kernel *
           places_along(operation, operation.height) * places_along(operation, operation.width) *
           number;
  }
  std::int64_t operator()(const SoftmaxCrossEntropyOperation& operation) const {
    return rows(operation.classes) * kSinglePrecision;
  }
};

/// Makes a layer's operation that of a rank, as far as tensor-parallel ranks divide it.
struct OperationOfRank {
  std::int64_t ranks;
  std::int64_t parts_of_experts;

  Operation operator()(LinearOperation operation) const {
    operation.outputs = divide_up(operation.outputs, ranks);
    return operation;
  }
  Operation operator()(AttentionOperation operation) const {
    operation.form.width = head_width_of(operation);
    operation.form.kv_heads = kv_heads_of(operation) / ranks;
    operation.heads /= ranks;
    return operation;
  }
  Operation operator()(TransformerBlockOperation operation) const {
    operation.form.width = head_width_of(attention_of(operation));
    operation.form.kv_heads = kv_heads_of(attention_of(operation)) / ranks;
    operation.heads /= ranks;
    operation.feed_forward /= operation.experts ? parts_of_experts : ranks;
    return operation;
  }
  Operation operator()(SoftmaxCrossEntropyOperation operation) const {
    operation.classes = divide_up(operation.classes, ranks);
    return operation;
  }
  template <class Other>
  Operation operator()(const Other& operation) const {
    return operation;
  }
};

/// What the ranks of a group exchange of a layer, in numbers of whole sequences.
struct Exchanged {
  const nn::Shape& input;

  std::int64_t rows(std::int64_t columns) const { return nn::count_of(input) / columns; }
  std::int64_t operator()(const EmbeddingOperation& operation) const {
    return nn::count_of(input) * operation.hidden;
  }
  std::int64_t operator()(const LinearOperation&) const { return nn::count_of(input); }
  std::int64_t operator()(const AttentionOperation& operation) const {
    const std::int64_t of_queries = operation.heads * head_width_of(operation);
    return rows(operation.hidden) * std::max(operation.hidden, of_queries);
  }
  std::int64_t operator()(const TransformerBlockOperation& operation) const {
    return (*this)(attention_of(operation));
  }
  /// A few numbers of each row.
  std::int64_t operator()(const SoftmaxCrossEntropyOperation& operation) const {
    return 2 * kNumbersOfRowPart * rows(operation.classes);
  }
  template <class Other>
  std::int64_t operator()(const Other&) const {
    return 0;
  }
};

/// Returns the numbers that a block keeps from its forward to its backward.
std::int64_t stash_of(const TransformerBlockOperation& operation, const nn::Shape& input) {
  const AttentionOperation attention = attention_of(operation);
  const std::int64_t heads = operation.heads * head_width_of(attention);
  const std::int64_t expanded = expanded_width_of(operation) + operation.feed_forward;
  const std::int64_t positions = nn::count_of(input) / operation.hidden;
  const std::int64_t of_experts =
      operation.experts ? numbers_of_experts(operation, positions * operation.experts->per_token)
                        : 0;
  constexpr std::int64_t kOfHeads = 3 + 3 + 3;  // queries, keys and values, spread, and outputs
  constexpr std::int64_t kOfHidden = 6;
  return positions * (kOfHidden * operation.hidden + kOfHeads * heads + 2 * expanded) + of_experts;
}

/// Returns an upper bound on the numbers that a rank with some of the experts keeps and has for a
/// moment, where the experts of all positions of its group, and of ranks that share these, are its
/// own.
std::int64_t of_arrivals(const TransformerBlockOperation& operation, const nn::Shape& input,
                         const nn::LayerRank& rank) {
  if (!operation.experts) return 0;
  const std::int64_t own = operation.experts->count / rank.experts.ranks;
  const std::int64_t of_position = std::min(operation.experts->per_token, own);
  const std::int64_t sharing = rank.expert_tensor.ranks;
  const std::int64_t positions =
      rank.experts.ranks * sharing * (nn::count_of(input) / operation.hidden);
  // A rank has what it sends and a copy of that, what arrives, and the sums.
  constexpr std::int64_t kSummed = 4;
  const std::int64_t summed = sharing > 1 ? kSummed * operation.hidden : 0;
  return numbers_of_experts(operation, positions * of_position) + positions * of_position * summed;
}

}  // namespace

Bytes workspace_of(const Operation& operation, const nn::Shape& input, Precision precision) {
  const WorkspaceOf of{input, size_of(type_of(precision))};
  return {kOfProducts + std::visit(of, operation)};
}

Bytes workspace_of(const Operation& whole, const nn::Shape& input, const nn::LayerRank& rank,
                   Precision precision) {
  if (rank.runs_whole_layers()) return workspace_of(whole, input, precision);
  const std::int64_t parts_of_experts =
      rank.experts.ranks > 1 ? rank.expert_tensor.ranks : rank.tensor.ranks;
  const Operation own = std::visit(OperationOfRank{rank.tensor.ranks, parts_of_experts}, whole);
  nn::Shape of_rank = input;
  if (input.size() > 1) of_rank[1] /= rank.context.ranks;
  Bytes size = workspace_of(own, of_rank, precision);
  // Gathered and summed sequences as they are and rank by rank, in single precision, and what is
  // sent of them; keys and values also as they are spread, and with their gradients.
  const bool is_shared = rank.tensor.ranks > 1 || rank.context.ranks > 1;
  const std::int64_t copies = rank.context.ranks > 1 ? 16 : 4;
  if (is_shared) size += Bytes{copies * std::visit(Exchanged{input}, whole) * kSinglePrecision};
  const auto* block = std::get_if<TransformerBlockOperation>(&own);
  if (block != nullptr && !rank.recomputes.none()) {
    size += Bytes{stash_of(*block, of_rank) * kSinglePrecision};
  }
  if (block != nullptr && rank.experts.ranks > 1) {
    size += Bytes{of_arrivals(*block, of_rank, rank) * kSinglePrecision};
  }
  return size;
}

}  // namespace dapple::cuda
