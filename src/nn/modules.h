// The elementary modules of which all others consist, and the two ways to combine modules.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dapple/nn/module.h"
#include "dapple/nn/shared_layers.h"

namespace dapple::nn {

/// Base class of modules without parameters. By default the output has the shape of the input,
/// which may be any.
class WithoutParameters : public Module {
 public:
  const std::vector<ParameterSpec>& parameters() const override;
  Shape output_shape(const Shape& sample) const override { return sample; }
  void weight_gradient(Stash& stash, Gradients sums) const override;
};

/// Throws Error(BadInput), without a source, with the message "expected WHAT, got [2, 3]".
[[noreturn]] void refuse_shape(const std::string& what, const Shape& sample);

/// Returns the shape as text, such as "[2, 3]".
std::string to_string(const Shape& shape);

/// Throws as refuse_shape() does unless the last dimension of `sample` is `size`.
void check_last_dimension(const Shape& sample, std::int64_t size);

std::unique_ptr<Module> make_embedding(const EmbeddingOperation& operation);
std::unique_ptr<Module> make_position_embedding(const PositionEmbeddingOperation& operation);
std::unique_ptr<Module> make_linear(const LinearOperation& operation);
std::unique_ptr<Module> make_layer_norm(const LayerNormOperation& operation);
std::unique_ptr<Module> make_rms_norm(const RmsNormOperation& operation);
std::unique_ptr<Module> make_relu();
std::unique_ptr<Module> make_gelu();
std::unique_ptr<Module> make_swiglu();
/// Creates a mixture of experts, over [..., hidden], of which a tensor-parallel rank computes its
/// part of every expert, as column-parallel and row-parallel layers do. It adds the margins of what
/// it routes to the first of the rank's, if there are any.
std::unique_ptr<Module> make_experts(const TransformerBlockOperation& operation,
                                     const LayerRank& rank);
/// Creates a module that turns the queries and keys of an attention by their positions, in
/// [sequence, ...], in which the heads of queries, keys and values follow one another in the last
/// dimension; of a context-parallel rank, at its positions. Requires: the operation has a rotary
/// base.
std::unique_ptr<Module> make_rotary(const AttentionOperation& operation, const GroupRank& rank);
/// Creates scaled dot-product attention with several heads, from [sequence, ...], in which the
/// heads of queries, keys and values follow one another in the last dimension, to [sequence, heads
/// * width]. A context-parallel rank has the queries at its positions, and gathers keys and values.
std::unique_ptr<Module> make_attention_heads(const AttentionOperation& operation,
                                             const GroupRank& rank);
std::unique_ptr<Module> make_convolution(const ConvolutionOperation& operation);
std::unique_ptr<Module> make_max_pool(const MaxPoolOperation& operation);
std::unique_ptr<Module> make_flatten();
std::unique_ptr<Module> make_softmax_cross_entropy(const SoftmaxCrossEntropyOperation& operation);

/// A named module of a chain.
struct Part {
  /// The prefix of the names of the module's parameters; if empty, they have no prefix.
  std::string name;
  std::unique_ptr<Module> module;
};

/// Creates a module that applies the parts one after another. It accepts only samples of the shape
/// `takes`, unless that is empty. Requires: there is at least one part.
std::unique_ptr<Module> make_chain(std::vector<Part> parts, Shape takes = {});

/// Creates a module that computes x + inner(x). Requires: the output of the inner module has the
/// shape of its input.
std::unique_ptr<Module> make_residual(std::unique_ptr<Module> inner);

}  // namespace dapple::nn
