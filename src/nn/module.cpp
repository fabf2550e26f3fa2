#include "dapple/nn/module.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "dapple/core/error.h"
#include "nn/modules.h"
#include "nn/transformer_block.h"

namespace dapple::nn {

Bytes size_of(const Stash& stash) {
  Bytes size{};
  for (const Tensor& tensor : stash.tensors) {
    size.count += static_cast<std::int64_t>(tensor.values.size() * sizeof(float));
  }
  for (const Stash& part : stash.parts) size += size_of(part);
  return size;
}

const std::vector<ParameterSpec>& WithoutParameters::parameters() const {
  static const std::vector<ParameterSpec> kNone;
  return kNone;
}

void WithoutParameters::weight_gradient(Stash& stash, Gradients) const {
  stash.tensors.clear();
}

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

void refuse_shape(const std::string& what, const Shape& sample) {
  throw Error{
      ErrorKind::BadInput, "", {{"", fmt::format("expected {}, got {}", what, to_string(sample))}}};
}

void check_last_dimension(const Shape& sample, std::int64_t size) {
  if (sample.empty() || sample.back() != size) {
    refuse_shape(fmt::format("an input whose last dimension is {}", size), sample);
  }
}

namespace {

std::unique_ptr<Module> make(const EmbeddingOperation& operation) {
  return make_embedding(operation);
}

std::unique_ptr<Module> make(const PositionEmbeddingOperation& operation) {
  return make_position_embedding(operation);
}

std::unique_ptr<Module> make(const LinearOperation& operation) {
  return make_linear(operation);
}

std::unique_ptr<Module> make(const LayerNormOperation& operation) {
  return make_layer_norm(operation);
}

std::unique_ptr<Module> make(const RmsNormOperation& operation) {
  return make_rms_norm(operation);
}

std::unique_ptr<Module> make(const ReluOperation&) {
  return make_relu();
}

std::unique_ptr<Module> make(const GeluOperation&) {
  return make_gelu();
}

std::unique_ptr<Module> make(const SwiGluOperation&) {
  return make_swiglu();
}

std::unique_ptr<Module> make(const AttentionOperation& operation) {
  return make_attention(operation, {});
}

std::unique_ptr<Module> make(const TransformerBlockOperation& operation) {
  return make_transformer_block(operation, {});
}

std::unique_ptr<Module> make(const ConvolutionOperation& operation) {
  return make_convolution(operation);
}

std::unique_ptr<Module> make(const MaxPoolOperation& operation) {
  return make_max_pool(operation);
}

std::unique_ptr<Module> make(const FlattenOperation&) {
  return make_flatten();
}

std::unique_ptr<Module> make(const SoftmaxCrossEntropyOperation& operation) {
  return make_softmax_cross_entropy(operation);
}

}  // namespace

std::unique_ptr<Module> make_module(const Operation& operation) {
  return std::visit([](const auto& kind) { return make(kind); }, operation);
}

}  // namespace dapple::nn
