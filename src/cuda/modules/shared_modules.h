// The modules of which layers consist that ranks share on GPUs. They take and return what ranks
// have between layers, as nn's do.
#pragma once

#include <cstdint>
#include <memory>

#include "cuda/kernels/layers/row_positions.h"
#include "dapple/cuda/modules/shared_layers.h"

namespace dapple::cuda {

/// A tensor-parallel rank, and how its group shares layers.
struct TensorGroup {
  std::int64_t rank = 0;
  std::int64_t ranks = 1;
  bool is_sequence_parallel = false;
  DeviceGroup* group = nullptr;
};
TensorGroup tensor_group(const DeviceRank& rank);

/// A rank with a part of every sequence.
struct ContextGroup {
  std::int64_t rank = 0;
  std::int64_t ranks = 1;
  DeviceGroup* group = nullptr;
};
ContextGroup context_group(const DeviceRank& rank);

/// Returns the tensor with all parts of each sequence, of which tensor-parallel ranks have equal
/// ones. The first dimension counts samples, the second one positions.
DeviceTensor gather_sequences(Device& device, const DeviceTensor& own, const TensorGroup& tensor);
/// Returns the sum over the ranks, the rank's part of each sequence.
DeviceTensor scatter_sequences(Device& device, const DeviceTensor& whole,
                               const TensorGroup& tensor);
/// Returns the sum of tensors of which each rank has computed a part: the rank's part of each
/// sequence with sequence parallelism, and else all of it.
DeviceTensor sum_of_ranks(Device& device, DeviceTensor partial, const TensorGroup& tensor);

/// The same of context-parallel ranks, whose positions are those of nn::positions_of().
RowPositions positions_of(const ContextGroup& context, std::int64_t sequence);
DeviceTensor gather_positions(Device& device, const DeviceTensor& own, const ContextGroup& context);
DeviceTensor scatter_positions(Device& device, const DeviceTensor& whole,
                               const ContextGroup& context);

/// Makes a linear layer with the rank's outputs, from whole inputs: those of `own`, of which there
/// are as many on every rank.
std::unique_ptr<DeviceModule> make_column_parallel(const LinearOperation& own,
                                                   const TensorGroup& tensor);
/// Makes a linear layer with a part of the inputs of `whole` on every rank, and all of its outputs.
std::unique_ptr<DeviceModule> make_row_parallel(const LinearOperation& whole,
                                                const TensorGroup& tensor);

/// Make embeddings and losses of which each rank has an equal part of the vocabulary, padded to a
/// multiple of the ranks. Require: the embedding has no positions.
std::unique_ptr<DeviceModule> make_vocabulary_parallel_embedding(const EmbeddingOperation& whole,
                                                                 const TensorGroup& tensor,
                                                                 Type type);
std::unique_ptr<DeviceModule> make_vocabulary_parallel_cross_entropy(
    const SoftmaxCrossEntropyOperation& whole, const TensorGroup& tensor);

/// Makes a module that takes the rank's positions out of sequences of tokens.
std::unique_ptr<DeviceModule> make_own_positions(const ContextGroup& context);
/// Makes a loss over whole sequences from one over the rank's positions of them.
std::unique_ptr<DeviceModule> make_context_parallel_loss(std::unique_ptr<DeviceModule> of_rank,
                                                         const ContextGroup& context);
/// Makes a position embedding that is whole on every rank, for the rank's part of each sequence.
std::unique_ptr<DeviceModule> make_shared_position_embedding(
    const PositionEmbeddingOperation& whole, const DeviceRank& rank);
/// Makes attention from the rank's queries, keys and values, one after another in the last
/// dimension as linear layers leave them, to all keys and values.
std::unique_ptr<DeviceModule> make_context_attention(const AttentionOperation& operation,
                                                     const ContextGroup& context);

/// Makes a mixture of experts: all of them, of which a tensor-parallel rank computes its part each,
/// or of which each expert-parallel rank has an equal part. Requires: in the second case every rank
/// has other positions.
std::unique_ptr<DeviceModule> make_experts(const TransformerBlockOperation& operation,
                                           const DeviceRank& rank);

/// Returns a module that keeps only its input, and runs its forward again before its gradients.
/// Requires: it is no loss.
std::unique_ptr<DeviceModule> make_recomputed(std::unique_ptr<DeviceModule> module);

/// Make attention and blocks as a rank runs them, of the same modules as nn's.
std::unique_ptr<DeviceModule> make_attention(const AttentionOperation& operation,
                                             const DeviceRank& rank);
std::unique_ptr<DeviceModule> make_block_of_modules(const TransformerBlockOperation& operation,
                                                    const DeviceRank& rank);

}  // namespace dapple::cuda
