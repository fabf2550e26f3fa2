#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "interop/profiles/configuration_families.h"

namespace dapple::interop {
namespace {

using estimate::Architecture;
using estimate::AttentionShape;
using estimate::BlockShape;
using estimate::ExpertsShape;

/// The defaults of a family for what its configuration leaves out.
struct FamilyDefaults {
  /// Whether the head uses the embedding's parameters.
  bool is_tied = false;
  /// Whether queries, keys and values, and the projection behind, have biases.
  bool has_input_bias = false;
  bool has_output_bias = false;
  /// The width of a head; 0 if heads divide the hidden size.
  std::int64_t head_width = 0;
};

/// Reads what all of these families have: the embedding, the head and attention.
AttentionShape read_common(ConfigurationKeys& keys, Architecture& model,
                           const FamilyDefaults& defaults) {
  model.hidden = keys.size("hidden_size");
  model.has_dropout = keys.any_above_zero({"attention_dropout", "resid_pdrop"}, false);
  model.embedding = {.vocabulary = keys.vocabulary("vocab_size")};
  model.head = {.outputs = model.embedding.vocabulary,
                .is_tied = keys.flag("tie_word_embeddings", defaults.is_tied)};
  AttentionShape attention{.heads = keys.size("num_attention_heads"), .is_causal = true};
  attention.kv_heads = keys.size_or("num_key_value_heads", attention.heads);
  keys.check_divides("num_attention_heads", attention.heads, attention.kv_heads,
                     "the heads of keys and values");
  const std::int64_t divided = std::max<std::int64_t>(1, model.hidden / attention.heads);
  attention.width =
      keys.size_or("head_dim", defaults.head_width > 0 ? defaults.head_width : divided);
  attention.value_width = attention.width;
  attention.has_input_bias = defaults.has_input_bias;
  attention.has_output_bias = defaults.has_output_bias;
  return attention;
}

/// Reads whether all projections of attention have biases.
void read_attention_bias(ConfigurationKeys& keys, AttentionShape& attention) {
  attention.has_input_bias = keys.flag("attention_bias", attention.has_input_bias);
  attention.has_output_bias = keys.flag("attention_bias", attention.has_output_bias);
}

BlockShape dense_block(const AttentionShape& attention, std::int64_t feed_forward,
                       bool has_bias = false) {
  return {.attention = attention,
          .feed_forward = {{.width = feed_forward, .is_gated = true, .has_bias = has_bias}}};
}

BlockShape expert_block(const AttentionShape& attention, const ExpertsShape& experts) {
  return {.attention = attention, .experts = experts};
}

/// Reads as many blocks as the key says, each as `shape_of` says for its number; equal neighbours
/// form a run.
void read_blocks(ConfigurationKeys& keys, Architecture& model,
                 const std::function<BlockShape(std::int64_t)>& shape_of,
                 const std::function<int(std::int64_t)>& kind_of) {
  const std::int64_t count = keys.layers("num_hidden_layers");
  std::optional<int> last;
  for (std::int64_t layer = 0; layer < count; ++layer) {
    const int kind = kind_of(layer);
    if (last != kind)
      model.blocks.push_back({.name = "block", .count = 0, .shape = shape_of(layer)});
    last = kind;
    ++model.blocks.back().count;
  }
}

void read_equal_blocks(ConfigurationKeys& keys, Architecture& model, const BlockShape& shape) {
  read_blocks(
      keys, model, [&](std::int64_t) { return shape; }, [](std::int64_t) { return 0; });
}

ExpertsShape read_experts(ConfigurationKeys& keys, std::string_view count_key,
                          std::string_view width_key) {
  ExpertsShape experts{.experts = keys.size(count_key),
                       .chosen = keys.size("num_experts_per_tok"),
                       .width = keys.size(width_key)};
  if (experts.chosen > experts.experts) {
    keys.refuse("num_experts_per_tok", "at most as many as there are experts");
    experts.chosen = experts.experts;
  }
  return experts;
}

/// The layers that see a window only.
struct Windows {
  std::int64_t tokens = 0;
  /// By layer.
  std::vector<bool> has_window = {};

  bool counts_for(std::int64_t layer) const {
    return tokens > 0 && has_window[static_cast<std::size_t>(layer)];
  }
  AttentionShape of_layer(AttentionShape attention, std::int64_t layer) const {
    attention.window = counts_for(layer) ? tokens : 0;
    return attention;
  }
};

/// Reads which layers see a window of so many tokens: those that "layer_types" says or, without it,
/// those of the rule.
Windows read_windows(ConfigurationKeys& keys, std::int64_t tokens,
                     const std::function<bool(std::int64_t)>& rule) {
  Windows windows{.tokens = tokens};
  const std::int64_t count = keys.layers("num_hidden_layers");
  const auto types = keys.texts("layer_types", count);
  for (std::int64_t layer = 0; layer < count; ++layer) {
    const auto position = static_cast<std::size_t>(layer);
    windows.has_window.push_back(types ? (*types)[position] != "full_attention" : rule(layer));
  }
  return windows;
}

/// Reads those of Qwen's models, all from one on.
Windows read_qwen_windows(ConfigurationKeys& keys) {
  const bool has_windows = keys.flag("use_sliding_window", false);
  const std::int64_t tokens = keys.count_or("sliding_window", 4096);
  const std::int64_t first = keys.count_or("max_window_layers", 28);
  return read_windows(keys, has_windows ? tokens : 0,
                      [first](std::int64_t layer) { return layer >= first; });
}

/// Reads blocks that differ in their windows only.
void read_window_blocks(ConfigurationKeys& keys, Architecture& model, const BlockShape& block,
                        const Windows& windows) {
  read_blocks(
      keys, model,
      [&](std::int64_t layer) {
        BlockShape shape = block;
        shape.attention = windows.of_layer(block.attention, layer);
        return shape;
      },
      [&](std::int64_t layer) { return windows.counts_for(layer) ? 1 : 0; });
}

/// Reads the dense layers of Qwen's models.
void read_qwen_blocks(ConfigurationKeys& keys, Architecture& model,
                      const AttentionShape& attention) {
  read_window_blocks(keys, model, dense_block(attention, keys.size("intermediate_size")),
                     read_qwen_windows(keys));
}

/// Reads Qwen's layers, of which those with a certain number have experts.
void read_sparse_blocks(ConfigurationKeys& keys, Architecture& model,
                        const AttentionShape& attention, const ExpertsShape& experts) {
  const std::int64_t step = keys.size_or("decoder_sparse_step", 1);
  const std::vector<std::int64_t> dense_layers =
      keys.numbers("mlp_only_layers").value_or(std::vector<std::int64_t>{});
  const auto is_dense = [&](std::int64_t layer) {
    return (layer + 1) % step != 0 ||
           std::find(dense_layers.begin(), dense_layers.end(), layer) != dense_layers.end();
  };
  const Windows windows = read_qwen_windows(keys);
  const std::int64_t width = keys.size_or("intermediate_size", 1);
  read_blocks(
      keys, model,
      [&](std::int64_t layer) {
        const AttentionShape own = windows.of_layer(attention, layer);
        return is_dense(layer) ? dense_block(own, width) : expert_block(own, experts);
      },
      [&](std::int64_t layer) {
        return (is_dense(layer) ? 2 : 0) + (windows.counts_for(layer) ? 1 : 0);
      });
}

}  // namespace

void read_llama(ConfigurationKeys& keys, Architecture& model) {
  AttentionShape attention = read_common(keys, model, {});
  read_attention_bias(keys, attention);
  read_equal_blocks(
      keys, model,
      dense_block(attention, keys.size("intermediate_size"), keys.flag("mlp_bias", false)));
}

void read_mistral(ConfigurationKeys& keys, Architecture& model) {
  AttentionShape attention = read_common(keys, model, {});
  attention.window = keys.count_unless_null("sliding_window", 4096);
  read_equal_blocks(keys, model, dense_block(attention, keys.size("intermediate_size")));
}

void read_mixtral(ConfigurationKeys& keys, Architecture& model) {
  AttentionShape attention = read_common(keys, model, {});
  attention.window = keys.count_or("sliding_window", 0);
  read_equal_blocks(
      keys, model,
      expert_block(attention, read_experts(keys, "num_local_experts", "intermediate_size")));
}

void read_qwen2(ConfigurationKeys& keys, Architecture& model) {
  const AttentionShape attention = read_common(keys, model, {.has_input_bias = true});
  read_qwen_blocks(keys, model, attention);
}

void read_qwen2_moe(ConfigurationKeys& keys, Architecture& model) {
  AttentionShape attention = read_common(keys, model, {.has_input_bias = true});
  attention.has_input_bias = keys.flag("qkv_bias", true);
  ExpertsShape experts = read_experts(keys, "num_experts", "moe_intermediate_size");
  experts.shared_width = keys.count_or("shared_expert_intermediate_size", 0);
  experts.has_shared_gate = experts.shared_width > 0;
  read_sparse_blocks(keys, model, attention, experts);
}

void read_qwen3(ConfigurationKeys& keys, Architecture& model) {
  AttentionShape attention = read_common(keys, model, {.head_width = 128});
  read_attention_bias(keys, attention);
  attention.normalizes_heads = true;
  read_qwen_blocks(keys, model, attention);
}

void read_qwen3_moe(ConfigurationKeys& keys, Architecture& model) {
  AttentionShape attention = read_common(keys, model, {.head_width = 128});
  read_attention_bias(keys, attention);
  attention.normalizes_heads = true;
  read_sparse_blocks(keys, model, attention,
                     read_experts(keys, "num_experts", "moe_intermediate_size"));
}

void read_gemma(ConfigurationKeys& keys, Architecture& model) {
  AttentionShape attention = read_common(keys, model, {.is_tied = true, .head_width = 256});
  read_attention_bias(keys, attention);
  read_equal_blocks(keys, model, dense_block(attention, keys.size("intermediate_size")));
}

void read_gemma2(ConfigurationKeys& keys, Architecture& model) {
  AttentionShape attention = read_common(keys, model, {.is_tied = true, .head_width = 256});
  read_attention_bias(keys, attention);
  BlockShape block = dense_block(attention, keys.size("intermediate_size"));
  block.norms_behind = 2;
  const Windows windows = read_windows(keys, keys.count_unless_null("sliding_window", 4096),
                                       [](std::int64_t layer) { return layer % 2 == 0; });
  read_window_blocks(keys, model, block, windows);
}

void read_gemma3(ConfigurationKeys& keys, Architecture& model) {
  AttentionShape attention = read_common(keys, model, {.is_tied = true, .head_width = 256});
  read_attention_bias(keys, attention);
  attention.normalizes_heads = true;
  BlockShape block = dense_block(attention, keys.size("intermediate_size"));
  block.norms_behind = 2;
  const std::int64_t period =
      keys.size_or("sliding_window_pattern", keys.size_or("_sliding_window_pattern", 6));
  const Windows windows =
      read_windows(keys, keys.count_unless_null("sliding_window", 4096),
                   [period](std::int64_t layer) { return (layer + 1) % period != 0; });
  read_window_blocks(keys, model, block, windows);
}

void read_llama4(ConfigurationKeys& keys, Architecture& model) {
  AttentionShape attention = read_common(keys, model, {});
  read_attention_bias(keys, attention);
  attention.normalizes_heads = keys.flag("use_qk_norm", true);
  attention.has_head_norm_parameters = false;
  ExpertsShape experts = read_experts(keys, "num_local_experts", "intermediate_size");
  experts.shared_width = experts.width;
  const std::int64_t dense_width = keys.size("intermediate_size_mlp");
  const std::int64_t step = keys.size_or("interleave_moe_layer_step", 1);
  const std::int64_t chunk = keys.count_or("attention_chunk_size", 8192);
  const std::int64_t whole_step = keys.size_or("no_rope_layer_interval", 4);
  // A list of 1 for layers with rotary positions, 0 for the others.
  const std::optional<std::vector<std::int64_t>> rotary = keys.numbers("no_rope_layers");
  const std::optional<std::vector<std::int64_t>> listed = keys.numbers("moe_layers");
  const auto has_experts = [&](std::int64_t layer) {
    if (!listed || listed->empty()) return (layer + 1) % step == 0;
    return std::find(listed->begin(), listed->end(), layer) != listed->end();
  };
  const auto sees_all = [&](std::int64_t layer) {
    const auto position = static_cast<std::size_t>(layer);
    if (rotary && position < rotary->size()) return (*rotary)[position] == 0;
    return (layer + 1) % whole_step == 0;
  };
  read_blocks(
      keys, model,
      [&](std::int64_t layer) {
        AttentionShape own = attention;
        own.window = sees_all(layer) ? 0 : chunk;
        own.is_chunked = own.window > 0;
        // Only queries and keys with rotary positions are normalized.
        own.normalizes_heads = attention.normalizes_heads && !sees_all(layer);
        return has_experts(layer) ? expert_block(own, experts) : dense_block(own, dense_width);
      },
      [&](std::int64_t layer) { return (has_experts(layer) ? 2 : 0) + (sees_all(layer) ? 1 : 0); });
}

void read_deepseek(ConfigurationKeys& keys, Architecture& model) {
  model.hidden = keys.size("hidden_size");
  model.has_dropout = keys.any_above_zero({"attention_dropout"}, false);
  model.embedding = {.vocabulary = keys.vocabulary("vocab_size")};
  model.head = {.outputs = model.embedding.vocabulary,
                .is_tied = keys.flag("tie_word_embeddings", false)};
  const estimate::LatentAttention latent{.query_rank = keys.count_or("q_lora_rank", 0),
                                         .kv_rank = keys.size("kv_lora_rank"),
                                         .plain_width = keys.size("qk_nope_head_dim"),
                                         .rotary_width = keys.size("qk_rope_head_dim")};
  const std::int64_t heads = keys.size("num_attention_heads");
  AttentionShape attention{.heads = heads,
                           .kv_heads = heads,
                           .width = latent.plain_width + latent.rotary_width,
                           .value_width = keys.size("v_head_dim"),
                           .is_causal = true,
                           .latent = latent};
  read_attention_bias(keys, attention);
  ExpertsShape experts = read_experts(keys, "n_routed_experts", "moe_intermediate_size");
  experts.shared_width = experts.width * keys.count_or("n_shared_experts", 0);
  const std::int64_t dense_width = keys.size("intermediate_size");
  const std::int64_t dense_layers = keys.count_or("first_k_dense_replace", 0);
  const std::int64_t step = keys.size_or("moe_layer_freq", 1);
  const auto is_dense = [&](std::int64_t layer) {
    return layer < dense_layers || layer % step != 0;
  };
  read_blocks(
      keys, model,
      [&](std::int64_t layer) {
        return is_dense(layer) ? dense_block(attention, dense_width)
                               : expert_block(attention, experts);
      },
      [&](std::int64_t layer) { return is_dense(layer) ? 1 : 0; });
}

}  // namespace dapple::interop
