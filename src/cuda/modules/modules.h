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
std::unique_ptr<DeviceModule> make_relu();
std::unique_ptr<DeviceModule> make_gelu();
/// Makes the attention of all heads, from queries, keys and values one after another in the last
/// dimension: [sequence, 3 hidden] to [sequence, hidden].
std::unique_ptr<DeviceModule> make_attention_heads(const AttentionOperation& operation);
std::unique_ptr<DeviceModule> make_transformer_block(const TransformerBlockOperation& operation);
std::unique_ptr<DeviceModule> make_convolution(const ConvolutionOperation& operation);
std::unique_ptr<DeviceModule> make_max_pool(const MaxPoolOperation& operation);
std::unique_ptr<DeviceModule> make_flatten();
/// Also accepts scores with gaps behind the rows; their gradients then have the same gaps.
std::unique_ptr<DeviceModule> make_softmax_cross_entropy(
    const SoftmaxCrossEntropyOperation& operation);

/// Makes a module that runs `parts` one after another. Requires: at least one.
std::unique_ptr<DeviceModule> make_chain(std::vector<std::unique_ptr<DeviceModule>> parts);

}  // namespace dapple::cuda
