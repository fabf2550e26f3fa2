// The modules of which layers consist that ranks share or compute again. They take and return what
// ranks have between layers: whole tensors, the same on every rank or, with sequence or context
// parallelism, the rank's part of each sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dapple/nn/module.h"
#include "dapple/nn/shared_layers.h"

namespace dapple::nn {

/// Returns the range of `count` that a rank has of equal parts. Requires: the ranks divide `count`.
ParameterPart::Range part_of_rank(std::int64_t count, const TensorRank& rank);

/// Returns the tensor with all parts of each sequence, of which the ranks have equal ones. The
/// first dimension counts samples, the second one positions.
Tensor gather_sequences(const Tensor& own, const TensorRank& rank);
/// Returns the sum over the ranks, the rank's part of each sequence.
Tensor scatter_sequences(Tensor whole, const TensorRank& rank);

/// Creates a linear layer of which each rank computes the outputs in `columns`, from whole inputs.
/// Its outputs are the rank's.
std::unique_ptr<Module> make_column_parallel(const LinearOperation& whole,
                                             const std::vector<ParameterPart::Range>& columns,
                                             const TensorRank& rank);
/// Creates a linear layer of which each rank has an equal part of the inputs, as the output of a
/// column-parallel layer. Its outputs are the whole layer's. Requires: it is not transposed.
std::unique_ptr<Module> make_row_parallel(const LinearOperation& whole, const TensorRank& rank);

/// Creates an embedding of which each rank holds an equal part of the vocabulary. Requires: the
/// embedding has no positions.
std::unique_ptr<Module> make_vocabulary_parallel_embedding(const EmbeddingOperation& whole,
                                                           const TensorRank& rank);
/// Creates a loss of which each rank has the scores of an equal part of the classes.
std::unique_ptr<Module> make_vocabulary_parallel_cross_entropy(
    const SoftmaxCrossEntropyOperation& whole, const TensorRank& rank);

/// Returns the positions of a sequence that a context-parallel rank has, in their order. Requires:
/// twice as many chunks as ranks divide the sequence.
std::vector<std::int64_t> positions_of(const GroupRank& rank, std::int64_t sequence);
/// Returns the tensor with all positions of each sequence, of which the ranks have theirs. The
/// first dimension counts samples, the second one positions.
Tensor gather_positions(const Tensor& own, const GroupRank& rank);
/// Returns the sum over the ranks, at the rank's positions.
Tensor scatter_positions(const Tensor& whole, const GroupRank& rank);

/// Creates a module that takes the rank's positions out of sequences of tokens.
std::unique_ptr<Module> make_own_positions(const GroupRank& rank);
/// Creates a loss over whole sequences from one over the rank's positions of them.
std::unique_ptr<Module> make_context_parallel_loss(std::unique_ptr<Module> of_rank,
                                                   const GroupRank& rank);
/// Creates a position embedding that is whole on every rank, for the rank's part of each sequence.
std::unique_ptr<Module> make_shared_position_embedding(const PositionEmbeddingOperation& whole,
                                                       const LayerRank& rank);
/// Creates a mixture of experts of which each rank has an equal number, or an equal part of the
/// width of these. Requires: every rank has other positions, and they divide experts and width.
std::unique_ptr<Module> make_expert_parallel(const TransformerBlockOperation& operation,
                                             const LayerRank& rank);
/// Returns a module that keeps only its input, and runs its forward again before its gradients.
/// Requires: it is no loss.
std::unique_ptr<Module> make_recomputed(std::unique_ptr<Module> module);
/// Returns a module that is whole on every rank and works position by position.
std::unique_ptr<Module> make_replicated(std::unique_ptr<Module> module, const TensorRank& rank);

}  // namespace dapple::nn
