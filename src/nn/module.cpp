#include "dapple/nn/module.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "dapple/core/error.h"
#include "nn/modules.h"

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

std::unique_ptr<Module> make(const ReluOperation&) {
  return make_relu();
}

std::unique_ptr<Module> make(const GeluOperation&) {
  return make_gelu();
}

std::unique_ptr<Module> make(const AttentionOperation& operation) {
  std::vector<Part> parts;
  parts.push_back({"qkv", make_linear({operation.hidden, 3 * operation.hidden, true})});
  parts.push_back({"", make_attention_heads(operation)});
  parts.push_back({"projection", make_linear({operation.hidden, operation.hidden, true})});
  return make_chain(std::move(parts));
}

/// Creates a pre-norm transformer block: attention and feed-forward, each preceded by a layer norm
/// and bypassed by a residual connection.
std::unique_ptr<Module> make(const TransformerBlockOperation& operation) {
  const std::int64_t hidden = operation.hidden;
  std::vector<Part> attention;
  attention.push_back({"norm1", make_layer_norm({hidden})});
  attention.push_back(
      {"attention", make(AttentionOperation{hidden, operation.heads, operation.causal})});
  std::vector<Part> feed_forward;
  feed_forward.push_back({"norm2", make_layer_norm({hidden})});
  feed_forward.push_back({"expand", make_linear({hidden, operation.feed_forward, true})});
  feed_forward.push_back({"", make_gelu()});
  feed_forward.push_back({"reduce", make_linear({operation.feed_forward, hidden, true})});
  std::vector<Part> parts;
  parts.push_back({"", make_residual(make_chain(std::move(attention)))});
  parts.push_back({"", make_residual(make_chain(std::move(feed_forward)))});
  return make_chain(std::move(parts), {operation.sequence, hidden});
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
