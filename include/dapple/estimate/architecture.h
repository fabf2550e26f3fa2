// What a transformer consists of, as far as it decides times and sizes: the shapes of its blocks,
// of its embedding and of its head.
//
// Source: Vaswani et al. 2017; Shazeer 2019 and Ainslie et al. 2023 (grouped queries); Shazeer 2020
// (gated feed-forward layers); Fedus et al. 2021 (experts); DeepSeek-V2 2024, section 2.1 (latent
// attention); Dosovitskiy et al. 2021 (vision transformers).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dapple::estimate {

/// Attention whose queries, keys and values are made from compressed vectors.
struct LatentAttention {
  /// The width of compressed queries; 0 if they are not compressed.
  std::int64_t query_rank = 0;
  /// The width of what keys and values are made from.
  std::int64_t kv_rank = 0;
  /// The parts of a head's width without and with rotary positions.
  std::int64_t plain_width = 0;
  std::int64_t rotary_width = 0;
};

struct AttentionShape {
  std::int64_t heads = 0;
  /// The heads of keys and values; all where attention is latent.
  std::int64_t kv_heads = 0;
  /// The width of a head of queries and keys, and that of one of values.
  std::int64_t width = 0;
  std::int64_t value_width = 0;
  bool is_causal = false;
  /// The number of tokens that a query sees at most; 0 if it sees all.
  std::int64_t window = 0;
  /// Whether it sees those of its chunk of `window` tokens instead of those before it.
  bool is_chunked = false;
  /// Whether the projections to queries, keys and values, and the one behind, have biases.
  bool has_input_bias = false;
  bool has_output_bias = false;
  /// Whether queries and keys are normalized, and whether that has parameters.
  bool normalizes_heads = false;
  bool has_head_norm_parameters = true;
  std::optional<LatentAttention> latent = {};
};

struct FeedForwardShape {
  std::int64_t width = 0;
  bool is_gated = false;
  bool has_bias = false;
};

struct ExpertsShape {
  std::int64_t experts = 0;
  /// The number of experts that process a token.
  std::int64_t chosen = 0;
  std::int64_t width = 0;
  bool is_gated = true;
  /// The width of the experts that process every token; 0 without any.
  std::int64_t shared_width = 0;
  /// Whether a learned gate scales what shared experts make.
  bool has_shared_gate = false;
  /// Whether the router has a bias for each expert.
  bool has_router_bias = false;
};

/// A block: attention, and a feed-forward layer or experts.
struct BlockShape {
  AttentionShape attention;
  /// The attention of a decoder to its encoder.
  std::optional<AttentionShape> cross_attention = {};
  /// One of the two.
  std::optional<FeedForwardShape> feed_forward = {};
  std::optional<ExpertsShape> experts = {};
  /// The normalizations whose outputs are inputs of matrix products, and all others.
  std::int64_t norms_before = 2;
  std::int64_t norms_behind = 0;
  /// Whether a normalization has a shift beside its scale.
  bool norms_shift = false;
  /// Parameters besides, as tables of relative positions, which every tensor rank holds.
  std::int64_t other_parameters = 0;
};

/// Consecutive blocks of one shape.
struct BlockRun {
  /// The layers' names are this, a dot and a number.
  std::string name;
  std::int64_t count = 0;
  BlockShape shape;
};

/// The layer that makes vectors of tokens or of an image's patches.
struct EmbeddingShape {
  /// The tokens that can occur; 0 for images.
  std::int64_t vocabulary = 0;
  /// The vectors for positions and kinds of tokens, and others that are added or put in front.
  std::int64_t other_vectors = 0;
  bool has_norm = false;
  /// The numbers of a patch, of which each image has `patches`; 0 for tokens.
  std::int64_t patch_numbers = 0;
  std::int64_t patches = 0;
};

/// The last layer, with the loss.
struct HeadShape {
  /// The width of its output: the vocabulary, or the number of classes of an image.
  std::int64_t outputs = 0;
  /// Whether it uses the embedding's parameters for its matrix.
  bool is_tied = false;
  bool has_norm = true;
  bool norm_shifts = false;
  bool has_bias = false;
  /// Whether a linear layer with bias and a normalization come first, as in BERT.
  bool has_transformation = false;
  /// Whether it has one vector of a sample as input, as for the class of an image.
  bool is_of_one_token = false;
};

struct Architecture {
  /// The model's name, and the family that its configuration names.
  std::string name;
  std::string family;
  std::int64_t hidden = 0;
  /// Whether it is trained with dropout.
  bool has_dropout = false;
  /// The largest number of tokens that positions are learned for; 0 if there is no such limit.
  std::int64_t most_tokens = 0;
  EmbeddingShape embedding;
  /// Blocks of an encoder whose output every block of a decoder attends to; none for most models.
  std::vector<BlockRun> encoder = {};
  /// All other blocks.
  std::vector<BlockRun> blocks;
  HeadShape head;
};

/// Returns the number of parameters of the model, shared ones once, without buffers.
std::int64_t parameter_count(const Architecture& architecture);

/// Returns the number of those that belong to routed experts.
std::int64_t expert_parameter_count(const Architecture& architecture);

}  // namespace dapple::estimate
