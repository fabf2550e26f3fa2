#include "dapple/cuda/modules/module.h"

#include <utility>
#include <variant>

#include "cuda/modules/modules.h"
#include "cuda/modules/shared_modules.h"

namespace dapple::cuda {

Bytes size_of(const DeviceStash& stash) {
  Bytes size;
  for (const DeviceTensor& tensor : stash.tensors) size += tensor.memory.size();
  for (const DeviceStash& part : stash.parts) size += size_of(part);
  return size;
}

void DeviceModuleWithoutParameters::weight_gradient(Device&, DeviceStash& stash, Gradients) const {
  stash.tensors.clear();
}

namespace {

std::unique_ptr<DeviceModule> make(const EmbeddingOperation& operation, Type type) {
  return make_embedding(operation, type);
}

std::unique_ptr<DeviceModule> make(const PositionEmbeddingOperation&, Type) {
  return make_position_embedding();
}

std::unique_ptr<DeviceModule> make(const LinearOperation& operation, Type) {
  return make_linear(operation);
}

std::unique_ptr<DeviceModule> make(const LayerNormOperation& operation, Type) {
  return make_layer_norm(operation);
}

std::unique_ptr<DeviceModule> make(const RmsNormOperation& operation, Type) {
  return make_rms_norm(operation);
}

std::unique_ptr<DeviceModule> make(const ReluOperation&, Type) {
  return make_relu();
}

std::unique_ptr<DeviceModule> make(const GeluOperation&, Type) {
  return make_gelu();
}

std::unique_ptr<DeviceModule> make(const SwiGluOperation&, Type) {
  return make_swiglu();
}

std::unique_ptr<DeviceModule> make(const AttentionOperation& operation, Type) {
  return make_attention(operation, {});
}

std::unique_ptr<DeviceModule> make(const TransformerBlockOperation& operation, Type) {
  return is_fused(operation, {}) ? make_transformer_block(operation)
                                 : make_block_of_modules(operation, {});
}

std::unique_ptr<DeviceModule> make(const ConvolutionOperation& operation, Type) {
  return make_convolution(operation);
}

std::unique_ptr<DeviceModule> make(const MaxPoolOperation& operation, Type) {
  return make_max_pool(operation);
}

std::unique_ptr<DeviceModule> make(const FlattenOperation&, Type) {
  return make_flatten();
}

std::unique_ptr<DeviceModule> make(const SoftmaxCrossEntropyOperation& operation, Type) {
  return make_softmax_cross_entropy(operation);
}

/// Returns the linear layer before layer `number` if the latter is its loss; else null.
const LinearOperation* head_before(std::span<const Operation> operations, std::size_t number) {
  const bool is_loss = number > 0 && number < operations.size() &&
                       std::holds_alternative<SoftmaxCrossEntropyOperation>(operations[number]);
  return is_loss ? std::get_if<LinearOperation>(&operations[number - 1]) : nullptr;
}

}  // namespace

std::unique_ptr<DeviceModule> make_module(const Operation& operation, Precision precision) {
  const Type type = type_of(precision);
  return std::visit([type](const auto& kind) { return make(kind, type); }, operation);
}

std::vector<std::unique_ptr<DeviceModule>> make_modules(std::span<const Operation> operations,
                                                        Precision precision) {
  std::vector<std::unique_ptr<DeviceModule>> modules;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const LinearOperation* head = head_before(operations, i + 1);
    modules.push_back(head != nullptr ? make_linear(*head, Rows::MayHaveGaps)
                                      : make_module(operations[i], precision));
  }
  return modules;
}

nn::Shape taken_shape(std::span<const Operation> operations, std::size_t number, nn::Shape dense,
                      Precision precision) {
  if (const LinearOperation* head = head_before(operations, number)) {
    dense.back() = stride_with_gaps(*head, type_of(precision));
  }
  return dense;
}

}  // namespace dapple::cuda
