#include <algorithm>
#include <string>

#include "interop/profiles/configuration_families.h"

namespace dapple::interop {
namespace {

using estimate::Architecture;
using estimate::AttentionShape;
using estimate::BlockShape;

/// Returns attention with as many heads of keys and values as of queries, all of one width.
AttentionShape plain_attention(std::int64_t heads, std::int64_t width, bool has_bias) {
  return {.heads = heads,
          .kv_heads = heads,
          .width = width,
          .value_width = width,
          .has_input_bias = has_bias,
          .has_output_bias = has_bias};
}

/// Reads the heads of a model whose hidden size they divide.
AttentionShape hidden_attention(ConfigurationKeys& keys, std::string_view hidden_key,
                                std::string_view heads_key, std::int64_t hidden) {
  const std::int64_t heads = keys.size(heads_key);
  keys.check_divides(hidden_key, hidden, heads, "the heads");
  return plain_attention(heads, hidden / heads, true);
}

/// A block with two normalizations that shift, and a dense layer with biases.
BlockShape biased_block(const AttentionShape& attention, std::int64_t feed_forward) {
  return {.attention = attention,
          .feed_forward = {{.width = feed_forward, .has_bias = true}},
          .norms_shift = true};
}

}  // namespace

void read_bert(ConfigurationKeys& keys, Architecture& model) {
  model.hidden = keys.size("hidden_size");
  model.has_dropout =
      keys.any_above_zero({"hidden_dropout_prob", "attention_probs_dropout_prob"}, true);
  model.most_tokens = keys.size_or("max_position_embeddings", 512);
  model.embedding = {.vocabulary = keys.vocabulary("vocab_size"),
                     .other_vectors = model.most_tokens + keys.size_or("type_vocab_size", 2),
                     .has_norm = true};
  const AttentionShape attention =
      hidden_attention(keys, "hidden_size", "num_attention_heads", model.hidden);
  model.blocks = {{.name = "block",
                   .count = keys.layers("num_hidden_layers"),
                   .shape = biased_block(attention, keys.size("intermediate_size"))}};
  model.head = {.outputs = model.embedding.vocabulary,
                .is_tied = keys.flag("tie_word_embeddings", true),
                .has_norm = false,
                .has_bias = true,
                .has_transformation = true};
}

void read_gpt2(ConfigurationKeys& keys, Architecture& model) {
  model.hidden = keys.size("n_embd");
  model.has_dropout = keys.any_above_zero({"resid_pdrop", "attn_pdrop", "embd_pdrop"}, true);
  model.most_tokens = keys.size_or("n_positions", 1024);
  model.embedding = {.vocabulary = keys.vocabulary("vocab_size"),
                     .other_vectors = model.most_tokens};
  AttentionShape attention = hidden_attention(keys, "n_embd", "n_head", model.hidden);
  attention.is_causal = true;
  model.blocks = {{.name = "block",
                   .count = keys.layers("n_layer"),
                   .shape = biased_block(attention, keys.size_or("n_inner", 4 * model.hidden))}};
  model.head = {.outputs = model.embedding.vocabulary,
                .is_tied = keys.flag("tie_word_embeddings", true),
                .norm_shifts = true};
}

void read_gpt_neox(ConfigurationKeys& keys, Architecture& model) {
  model.hidden = keys.size("hidden_size");
  model.has_dropout = keys.any_above_zero({"hidden_dropout", "attention_dropout"}, false);
  model.embedding = {.vocabulary = keys.vocabulary("vocab_size")};
  AttentionShape attention =
      hidden_attention(keys, "hidden_size", "num_attention_heads", model.hidden);
  attention.is_causal = true;
  attention.has_input_bias = keys.flag("attention_bias", true);
  attention.has_output_bias = attention.has_input_bias;
  model.blocks = {{.name = "block",
                   .count = keys.layers("num_hidden_layers"),
                   .shape = biased_block(attention, keys.size("intermediate_size"))}};
  model.head = {.outputs = model.embedding.vocabulary,
                .is_tied = keys.flag("tie_word_embeddings", false),
                .norm_shifts = true};
}

void read_t5(ConfigurationKeys& keys, Architecture& model) {
  model.hidden = keys.size("d_model");
  model.has_dropout = keys.any_above_zero({"dropout_rate"}, true);
  model.embedding = {.vocabulary = keys.vocabulary("vocab_size")};
  const std::int64_t heads = keys.size("num_heads");
  const AttentionShape attention = plain_attention(heads, keys.size("d_kv"), false);
  const std::string activation = keys.text("feed_forward_proj", "relu");
  BlockShape block{
      .attention = attention,
      .feed_forward = {{.width = keys.size("d_ff"), .is_gated = activation.starts_with("gated-")}}};
  // Only the first block of the encoder, and of the decoder, has a table of relative positions.
  BlockShape first = block;
  first.other_parameters = heads * keys.size_or("relative_attention_num_buckets", 32);
  const auto runs = [&](const std::string& name, std::int64_t count) {
    std::vector<estimate::BlockRun> both{{.name = name, .count = 1, .shape = first}};
    if (count > 1) both.push_back({.name = name, .count = count - 1, .shape = block});
    return both;
  };
  const std::int64_t layers = keys.layers("num_layers");
  model.encoder = runs("encoder", layers);
  for (BlockShape* const each : {&first, &block}) {
    each->cross_attention = attention;
    each->attention.is_causal = true;
    each->norms_before = 3;
  }
  model.blocks = runs("decoder", keys.layers_or("num_decoder_layers", layers));
  model.head = {.outputs = model.embedding.vocabulary,
                .is_tied = keys.flag("tie_word_embeddings", true)};
}

void read_vit(ConfigurationKeys& keys, Architecture& model) {
  model.hidden = keys.size("hidden_size");
  model.has_dropout =
      keys.any_above_zero({"hidden_dropout_prob", "attention_probs_dropout_prob"}, false);
  const std::int64_t image = keys.size_or("image_size", 224);
  const std::int64_t patch = keys.size_or("patch_size", 16);
  keys.check_divides("image_size", image, patch, "the pixels of a patch");
  const std::int64_t side = std::max<std::int64_t>(1, image / patch);
  constexpr std::int64_t kMostPatches = std::int64_t{1} << 20;
  if (side * side > kMostPatches) keys.refuse("image_size", "an image of at most 1048576 patches");
  model.embedding = {.other_vectors = side * side + 2,
                     .patch_numbers = keys.size_or("num_channels", 3) * patch * patch,
                     .patches = std::min(side * side, kMostPatches)};
  AttentionShape attention =
      hidden_attention(keys, "hidden_size", "num_attention_heads", model.hidden);
  attention.has_input_bias = keys.flag("qkv_bias", true);
  model.blocks = {{.name = "block",
                   .count = keys.layers("num_hidden_layers"),
                   .shape = biased_block(attention, keys.size("intermediate_size"))}};
  // Without a list of its classes a model has two, as the library has it.
  model.head = {.outputs = keys.size_or("num_labels", keys.members_or("id2label", 2)),
                .norm_shifts = true,
                .has_bias = true,
                .is_of_one_token = true};
}

}  // namespace dapple::interop
