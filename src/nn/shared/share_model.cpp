#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "dapple/core/error.h"
#include "nn/modules.h"
#include "nn/shared_modules.h"
#include "nn/transformer_block.h"

namespace dapple::nn {
namespace {

/// Makes one layer as a rank runs it, or finds why the ranks cannot share it.
class LayerSharing {
 public:
  LayerSharing(const LayerRank& rank, bool is_before_loss, bool is_behind_linear)
      : rank_(rank), is_before_loss_(is_before_loss), is_behind_linear_(is_behind_linear) {}

  std::unique_ptr<Module> operator()(const EmbeddingOperation& operation) {
    need_sequence(operation.sequence);
    return is_well() ? make_shared_embedding(operation) : nullptr;
  }
  std::unique_ptr<Module> operator()(const PositionEmbeddingOperation& operation) {
    need_sequence(operation.sequence);
    return is_well() ? make_shared_position_embedding(operation, rank_) : nullptr;
  }
  std::unique_ptr<Module> operator()(const LinearOperation& operation) {
    const TensorRank& tensor = rank_.tensor;
    if (tensor.ranks == 1) return make_linear(operation);
    if (!is_before_loss_) refuse("a linear layer only before the loss");
    const std::int64_t padded = divide_up(operation.outputs, tensor.ranks) * tensor.ranks;
    return is_well() ? make_column_parallel(operation, {part_of_rank(padded, tensor)}, tensor)
                     : nullptr;
  }
  std::unique_ptr<Module> operator()(const AttentionOperation& operation) {
    need_heads(operation);
    return is_well() ? make_attention(operation, rank_) : nullptr;
  }
  std::unique_ptr<Module> operator()(const TransformerBlockOperation& operation) {
    need_heads(attention_of(operation));
    const bool has_parallel_experts = rank_.experts.ranks > 1 && operation.experts;
    if (has_parallel_experts) {
      need(operation.experts->count, rank_.experts.ranks, "experts");
      need(operation.feed_forward, rank_.expert_tensor.ranks, "columns of the feed-forward layer");
    } else {
      need(operation.feed_forward, rank_.tensor.ranks, "columns of the feed-forward layer");
    }
    need_sequence(operation.sequence);
    return is_well() ? make_transformer_block(operation, rank_) : nullptr;
  }
  std::unique_ptr<Module> operator()(const SoftmaxCrossEntropyOperation& operation) {
    if (rank_.tensor.ranks > 1 && !is_behind_linear_) refuse("a loss only behind a linear layer");
    if (!is_well()) return nullptr;
    auto loss = rank_.tensor.ranks == 1
                    ? make_softmax_cross_entropy(operation)
                    : make_vocabulary_parallel_cross_entropy(operation, rank_.tensor);
    if (rank_.context.ranks == 1) return loss;
    return make_context_parallel_loss(std::move(loss), rank_.context);
  }
  std::unique_ptr<Module> operator()(const LayerNormOperation& operation) {
    return make_replicated(make_layer_norm(operation), rank_.tensor);
  }
  std::unique_ptr<Module> operator()(const RmsNormOperation& operation) {
    return make_replicated(make_rms_norm(operation), rank_.tensor);
  }
  std::unique_ptr<Module> operator()(const ReluOperation&) { return make_relu(); }
  std::unique_ptr<Module> operator()(const GeluOperation&) { return make_gelu(); }
  std::unique_ptr<Module> operator()(const SwiGluOperation&) { return make_swiglu(); }
  template <class Image>
  std::unique_ptr<Module> operator()(const Image& operation) {
    if (rank_.runs_whole_layers()) return make_module(operation);
    refuse("no layer of images");
    return nullptr;
  }

  /// Why the layer cannot be shared; empty if it can.
  const std::string& fault() const { return fault_; }

 private:
  std::unique_ptr<Module> make_shared_embedding(const EmbeddingOperation& operation) const {
    EmbeddingOperation tokens = operation;
    tokens.positions = false;
    tokens.sequence /= rank_.context.ranks;
    std::vector<Part> parts;
    if (rank_.context.ranks > 1) parts.push_back({"", make_own_positions(rank_.context)});
    parts.push_back({"", rank_.tensor.ranks == 1
                             ? make_embedding(tokens)
                             : make_vocabulary_parallel_embedding(tokens, rank_.tensor)});
    if (operation.positions) {
      parts.push_back(
          {"", make_shared_position_embedding({operation.sequence, operation.hidden}, rank_)});
    }
    return make_chain(std::move(parts));
  }

  bool is_well() const { return fault_.empty(); }
  void refuse(const std::string& expected) {
    if (!is_well()) return;
    fault_ = fmt::format("expected {} in a model that {} ranks share", expected, ranks_in_words());
  }
  std::string ranks_in_words() const {
    std::vector<std::string> kinds;
    const auto add = [&](std::int64_t ranks, const char* kind) {
      if (ranks > 1) kinds.push_back(fmt::format("{} {}-parallel", ranks, kind));
    };
    add(rank_.tensor.ranks, "tensor");
    add(rank_.context.ranks, "context");
    add(rank_.experts.ranks, "expert");
    add(rank_.expert_tensor.ranks, "expert-tensor");
    return fmt::format("{}", fmt::join(kinds, " and "));
  }
  void need(std::int64_t count, std::int64_t parts, const char* what) {
    if (count % parts == 0) return;
    refuse(fmt::format("a multiple of {} {}, got {},", parts, what, count));
  }
  void need_heads(const AttentionOperation& operation) {
    need(operation.heads, rank_.tensor.ranks, "heads");
    need(kv_heads_of(operation), rank_.tensor.ranks, "heads of keys and values");
  }
  void need_sequence(std::int64_t sequence) {
    const std::int64_t ranks = rank_.context.ranks;
    const std::int64_t tensor = rank_.tensor.is_sequence_parallel ? rank_.tensor.ranks : 1;
    if (ranks > 1) need(sequence, 2 * ranks, "positions");
    if (is_well()) need(sequence, ranks * tensor, "positions");
  }

  const LayerRank& rank_;
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
          .targets = layer.targets,
          .tied_to = layer.tied_to,
          .tied_parameters = layer.tied_parameters};
}

}  // namespace

bool has_any_of(RecomputedParts parts, const Operation& operation) {
  const auto* block = std::get_if<TransformerBlockOperation>(&operation);
  const auto has = [&](RecomputedPart part) {
    if (part == RecomputedPart::FeedForward) return !block->experts;
    return part != RecomputedPart::Experts || block->experts.has_value();
  };
  return block != nullptr &&
         std::any_of(std::begin(kRecomputedParts), std::end(kRecomputedParts),
                     [&](RecomputedPart part) { return parts.contains(part) && has(part); });
}

std::vector<ModelLayer> share_model(const std::vector<ModelLayer>& whole, const LayerRank& rank,
                                    const std::string& source_name) {
  check(kRecomputable.includes(rank.recomputes), "a part of layers cannot be computed again");
  const auto refuse = [&](const ModelLayer& layer, std::string message) {
    throw Error{ErrorKind::BadInput,
                source_name,
                {{fmt::format("layer {}/op", layer.name), std::move(message)}}};
  };
  const bool divides_sequences = rank.tensor.is_sequence_parallel || rank.context.ranks > 1;
  if (divides_sequences && !std::holds_alternative<EmbeddingOperation>(whole.front().operation)) {
    refuse(whole.front(),
           "expected an embedding as the first layer of a model whose sequences are "
           "divided among ranks");
  }
  std::vector<ModelLayer> shared;
  Shape shape = whole.front().input;
  bool is_behind_linear = false;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    ModelLayer layer = without_module(whole[i]);
    LayerRank of_layer = rank;
    if (!rank.margins.empty()) of_layer.margins = rank.margins.subspan(i, 1);
    LayerSharing sharing(of_layer, i + 1 < whole.size() && is_loss(whole[i + 1]), is_behind_linear);
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
