#include "dapple/cuda/modules/shared_layers.h"

#include <utility>
#include <variant>

#include "cuda/modules/modules.h"
#include "cuda/modules/shared_modules.h"
#include "dapple/core/quantity.h"

namespace dapple::cuda {
namespace {

/// Makes one layer as a rank runs it.
struct SharedModule {
  const DeviceRank& rank;
  Precision precision;

  TensorGroup tensor() const { return tensor_group(rank); }
  ContextGroup context() const { return context_group(rank); }

  std::unique_ptr<DeviceModule> operator()(const EmbeddingOperation& operation) const {
    EmbeddingOperation tokens = operation;
    tokens.positions = false;
    tokens.sequence /= context().ranks;
    std::vector<std::unique_ptr<DeviceModule>> parts;
    if (context().ranks > 1) parts.push_back(make_own_positions(context()));
    parts.push_back(tensor().ranks == 1
                        ? make_embedding(tokens, type_of(precision))
                        : make_vocabulary_parallel_embedding(tokens, tensor(), type_of(precision)));
    if (operation.positions) {
      parts.push_back(make_shared_position_embedding({operation.sequence, operation.hidden}, rank));
    }
    return make_chain(std::move(parts));
  }
  std::unique_ptr<DeviceModule> operator()(const PositionEmbeddingOperation& operation) const {
    return make_shared_position_embedding(operation, rank);
  }
  std::unique_ptr<DeviceModule> operator()(LinearOperation operation) const {
    if (tensor().ranks == 1) return make_linear(operation);
    operation.outputs = divide_up(operation.outputs, tensor().ranks);
    return make_column_parallel(operation, tensor());
  }
  std::unique_ptr<DeviceModule> operator()(const AttentionOperation& operation) const {
    return make_attention(operation, rank);
  }
  std::unique_ptr<DeviceModule> operator()(const TransformerBlockOperation& operation) const {
    if (!is_fused(operation, rank.layers)) return make_block_of_modules(operation, rank);
    auto block = make_transformer_block(operation);
    const bool is_recomputed = rank.layers.recomputes.contains(RecomputedPart::Layer);
    return is_recomputed ? make_recomputed(std::move(block)) : std::move(block);
  }
  std::unique_ptr<DeviceModule> operator()(const SoftmaxCrossEntropyOperation& operation) const {
    auto loss = tensor().ranks == 1 ? make_softmax_cross_entropy(operation)
                                    : make_vocabulary_parallel_cross_entropy(operation, tensor());
    return context().ranks == 1 ? std::move(loss)
                                : make_context_parallel_loss(std::move(loss), context());
  }
  template <class Other>
  std::unique_ptr<DeviceModule> operator()(const Other& operation) const {
    return make_module(operation, precision);
  }
};

}  // namespace

bool is_fused(const TransformerBlockOperation& operation, const nn::LayerRank& rank) {
  const bool is_shared = rank.tensor.ranks > 1 || rank.context.ranks > 1;
  const bool has_parts = rank.recomputes.contains(RecomputedPart::CoreAttention) ||
                         rank.recomputes.contains(RecomputedPart::FeedForward);
  return is_gpt2_block(operation) && !is_shared && !has_parts;
}

std::vector<std::unique_ptr<DeviceModule>> make_shared_modules(
    std::span<const Operation> operations, std::span<const RecomputedParts> recomputed,
    const DeviceRank& rank, Precision precision) {
  std::vector<std::unique_ptr<DeviceModule>> modules;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    DeviceRank of_layer = rank;
    of_layer.layers.recomputes = recomputed[i];
    modules.push_back(std::visit(SharedModule{of_layer, precision}, operations[i]));
  }
  return modules;
}

}  // namespace dapple::cuda
