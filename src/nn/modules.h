// The modules that all others are made of, and the two ways to put modules together.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dapple/nn/module.h"

namespace dapple::nn {

/// For what takes tensors of any shape and has nothing to learn.
class WithoutParameters : public Module {
 public:
  const std::vector<ParameterSpec>& parameters() const override;
  Shape output_shape(const Shape& sample) const override { return sample; }
  void weight_gradient(Stash& stash, Gradients sums) const override;
};

/// Throws Error(BadInput), without a source: "expected WHAT, got [2, 3]".
[[noreturn]] void refuse_shape(const std::string& what, const Shape& sample);

/// "[2, 3]".
std::string to_string(const Shape& shape);

/// Throws unless the last dimension of a sample is `size`.
void check_last_dimension(const Shape& sample, std::int64_t size);

std::unique_ptr<Module> make_embedding(const EmbeddingOperation& operation);
std::unique_ptr<Module> make_position_embedding(const PositionEmbeddingOperation& operation);
std::unique_ptr<Module> make_linear(const LinearOperation& operation);
std::unique_ptr<Module> make_layer_norm(const LayerNormOperation& operation);
std::unique_ptr<Module> make_relu();
std::unique_ptr<Module> make_gelu();
/// Queries, keys and values, one after another in the last dimension, to what the heads attend to:
/// [sequence, 3 hidden] to [sequence, hidden].
std::unique_ptr<Module> make_attention_heads(const AttentionOperation& operation);
std::unique_ptr<Module> make_convolution(const ConvolutionOperation& operation);
std::unique_ptr<Module> make_max_pool(const MaxPoolOperation& operation);
std::unique_ptr<Module> make_flatten();
std::unique_ptr<Module> make_softmax_cross_entropy(const SoftmaxCrossEntropyOperation& operation);

struct Part {
  std::string name;  // stands before the names of its parameters; none stands before if empty
  std::unique_ptr<Module> module;
};

/// One after another, on samples of the shape `takes` alone where one is given. Requires: at least
/// one part.
std::unique_ptr<Module> make_chain(std::vector<Part> parts, Shape takes = {});

/// x + inner(x). Requires: the inner module's output is shaped as its input.
std::unique_ptr<Module> make_residual(std::unique_ptr<Module> inner);

}  // namespace dapple::nn
