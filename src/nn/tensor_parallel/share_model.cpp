#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "dapple/core/error.h"
#include "nn/modules.h"
#include "nn/shared_modules.h"
#include "nn/transformer_block.h"

namespace dapple::nn {
namespace {

/// Makes one layer as a rank runs it, or finds why the ranks cannot share it.
class LayerSharing {
 public:
  LayerSharing(const TensorRank& rank, bool is_before_loss, bool is_behind_linear)
      : rank_(rank), is_before_loss_(is_before_loss), is_behind_linear_(is_behind_linear) {}

  std::unique_ptr<Module> operator()(const EmbeddingOperation& operation) {
    if (rank_.is_sequence_parallel) need(operation.sequence, "positions");
    return is_well() ? make_vocabulary_parallel_embedding(operation, rank_) : nullptr;
  }
  std::unique_ptr<Module> operator()(const PositionEmbeddingOperation& operation) {
    if (rank_.is_sequence_parallel) need(operation.sequence, "positions");
    return is_well() ? make_replicated_position_embedding(operation, rank_) : nullptr;
  }
  std::unique_ptr<Module> operator()(const LinearOperation& operation) {
    if (!is_before_loss_) refuse("a linear layer only before the loss");
    const std::int64_t padded = divide_up(operation.outputs, rank_.ranks) * rank_.ranks;
    return is_well() ? make_column_parallel(operation, {part_of_rank(padded, rank_)}, rank_)
                     : nullptr;
  }
  std::unique_ptr<Module> operator()(const AttentionOperation& operation) {
    need_heads(operation);
    return is_well() ? make_attention(operation, rank_) : nullptr;
  }
  std::unique_ptr<Module> operator()(const TransformerBlockOperation& operation) {
    need_heads(attention_of(operation));
    need(operation.feed_forward, "columns of the feed-forward layer");
    if (rank_.is_sequence_parallel) need(operation.sequence, "positions");
    return is_well() ? make_transformer_block(operation, rank_) : nullptr;
  }
  std::unique_ptr<Module> operator()(const SoftmaxCrossEntropyOperation& operation) {
    if (!is_behind_linear_) refuse("a loss only behind a linear layer");
    return is_well() ? make_vocabulary_parallel_cross_entropy(operation, rank_) : nullptr;
  }
  std::unique_ptr<Module> operator()(const LayerNormOperation& operation) {
    return make_replicated(make_layer_norm(operation), rank_);
  }
  std::unique_ptr<Module> operator()(const RmsNormOperation& operation) {
    return make_replicated(make_rms_norm(operation), rank_);
  }
  std::unique_ptr<Module> operator()(const ReluOperation&) { return make_relu(); }
  std::unique_ptr<Module> operator()(const GeluOperation&) { return make_gelu(); }
  std::unique_ptr<Module> operator()(const SwiGluOperation&) { return make_swiglu(); }
  template <class Image>
  std::unique_ptr<Module> operator()(const Image&) {
    refuse("no layer of images");
    return nullptr;
  }

  /// Why the layer cannot be shared; empty if it can.
  const std::string& fault() const { return fault_; }

 private:
  bool is_well() const { return fault_.empty(); }
  void refuse(const std::string& expected) {
    if (!is_well()) return;
    fault_ = fmt::format("expected {} in a model that {} tensor-parallel ranks share", expected,
                         rank_.ranks);
  }
  void need(std::int64_t count, const char* what) {
    if (count % rank_.ranks == 0) return;
    refuse(fmt::format("a multiple of {} {}, got {},", rank_.ranks, what, count));
  }
  void need_heads(const AttentionOperation& operation) {
    need(operation.heads, "heads");
    need(kv_heads_of(operation), "heads of keys and values");
  }

  const TensorRank& rank_;
  bool is_before_loss_;
  bool is_behind_linear_;
  std::string fault_;
};

bool is_loss(const ModelLayer& layer) {
  return std::holds_alternative<SoftmaxCrossEntropyOperation>(layer.operation);
}

/// Returns the layer without module and shapes.
ModelLayer without_module(const ModelLayer& layer) {
  return {.name = layer.name,
          .operation = layer.operation,
          .module = nullptr,
          .input = {},
          .output = {},
          .tied_to = layer.tied_to,
          .tied_parameters = layer.tied_parameters};
}

}  // namespace

std::vector<ModelLayer> share_model(const std::vector<ModelLayer>& whole, const TensorRank& rank,
                                    const std::string& source_name) {
  check(rank.ranks > 1, "a model is shared by one rank");
  const auto refuse = [&](const ModelLayer& layer, std::string message) {
    throw Error{ErrorKind::BadInput,
                source_name,
                {{fmt::format("layer {}/op", layer.name), std::move(message)}}};
  };
  if (rank.is_sequence_parallel &&
      !std::holds_alternative<EmbeddingOperation>(whole.front().operation)) {
    refuse(whole.front(),
           "expected an embedding as the first layer of a model whose sequences are "
           "divided among tensor-parallel ranks");
  }
  std::vector<ModelLayer> shared;
  Shape shape = whole.front().input;
  bool is_behind_linear = false;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    ModelLayer layer = without_module(whole[i]);
    LayerSharing sharing(rank, i + 1 < whole.size() && is_loss(whole[i + 1]), is_behind_linear);
    layer.module = std::visit(sharing, layer.operation);
    if (layer.module == nullptr) refuse(layer, sharing.fault());
    layer.input = shape;
    layer.output = layer.module->output_shape(shape);
    shape = layer.output;
    is_behind_linear = std::holds_alternative<LinearOperation>(layer.operation);
    shared.push_back(std::move(layer));
  }
  return shared;
}

}  // namespace dapple::nn
