// The elementary modules from which all others are made, and their composition. `type` is that of
// activations and parameters.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "dapple/cuda/modules/module.h"

namespace dapple::cuda {

/// The base class of modules without parameters.
class DeviceModuleWithoutParameters : public DeviceModule {
 public:
  std::size_t parameter_count() const override { return 0; }
  void weight_gradient(Device& device, DeviceStash& stash, Gradients sums) const override;
};

std::unique_ptr<DeviceModule> make_embedding(const EmbeddingOperation& operation, Type type);
std::unique_ptr<DeviceModule> make_position_embedding();
/// Whether a module may leave gaps behind the rows of its output; the last dimension is then the
/// stride of the rows.
enum class Rows { Dense, MayHaveGaps };
std::unique_ptr<DeviceModule> make_linear(const LinearOperation& operation,
                                          Rows output = Rows::Dense);
std::int64_t stride_with_gaps(const LinearOperation& operation, Type type);
std::unique_ptr<DeviceModule> make_layer_norm(const LayerNormOperation& operation);
std::unique_ptr<DeviceModule> make_rms_norm(const RmsNormOperation& operation);
std::unique_ptr<DeviceModule> make_relu();
std::unique_ptr<DeviceModule> make_gelu();
std::unique_ptr<DeviceModule> make_swiglu();
/// Makes what turns queries and keys by their positions and copies keys and values for each head of
/// queries: [sequence, (heads + 2 kv_heads) width] to [sequence, 3 heads width].
std::unique_ptr<DeviceModule> make_spread_heads(const AttentionOperation& operation);
/// Makes the attention of all heads, from queries, keys and values one after another in the last
/// dimension, each with all heads: [sequence, 3 heads width] to [sequence, heads width].
std::unique_ptr<DeviceModule> make_attention_heads(const AttentionOperation& operation);
/// Makes a block of GPT-2's form: layer norms, biases, GELU, and heads without a form of their own.
std::unique_ptr<DeviceModule> make_transformer_block(const TransformerBlockOperation& operation);
std::unique_ptr<DeviceModule> make_convolution(const ConvolutionOperation& operation);
std::unique_ptr<DeviceModule> make_max_pool(const MaxPoolOperation& operation);
std::unique_ptr<DeviceModule> make_flatten();
/// Also accepts scores with gaps behind the rows; their gradients then have the same gaps.
std::unique_ptr<DeviceModule> make_softmax_cross_entropy(
    const SoftmaxCrossEntropyOperation& operation);

/// Makes a module that runs `parts` one after another. Requires: at least one.
std::unique_ptr<DeviceModule> make_chain(std::vector<std::unique_ptr<DeviceModule>> parts);

/// Makes a module that computes x + inner(x). Requires: the output of the inner module has the
/// shape of its input.
std::unique_ptr<DeviceModule> make_residual(std::unique_ptr<DeviceModule> inner);

}  // namespace dapple::cuda
