// The operation that a layer computes, needed to execute it: `op` of a layer in a profile.
//
// Sizes are per sample. A layer's input is the output of the layer before it. The first layer's
// input is the model's, token numbers, a vector or an image, as its own dimensions determine.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "dapple/core/error.h"

namespace dapple {

/// The largest vocabulary and the largest number of classes: token and class numbers are held in
/// single precision.
inline constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24;
/// The largest value of every other dimension.
inline constexpr std::int64_t kMaxDimension = std::int64_t{1} << 20;

/// Maps [sequence] token numbers to [sequence, hidden]. `positions` adds a learned vector for each
/// position (GPT-2, BERT), unless that is a separate layer.
struct EmbeddingOperation {
  std::int64_t vocabulary = 0;
  std::int64_t sequence = 0;
  std::int64_t hidden = 0;
  bool positions = true;
};

/// Adds a learned vector for each position to [sequence, hidden].
struct PositionEmbeddingOperation {
  std::int64_t sequence = 0;
  std::int64_t hidden = 0;
};

/// Computes y = x W + b over the last dimension. If `transposed`, W is stored as [outputs, inputs],
/// so that it may be the table of an embedding.
struct LinearOperation {
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  bool bias = true;
  bool transposed = false;
};

/// Layer normalization over the last dimension, with scale and shift.
struct LayerNormOperation {
  std::int64_t hidden = 0;
};

/// RMS normalization over the last dimension, as in Llama 2: x / sqrt(mean(x^2) + 1e-5), with a
/// scale.
struct RmsNormOperation {
  std::int64_t hidden = 0;
};

struct ReluOperation {};

/// GELU in its tanh approximation, as in GPT-2.
struct GeluOperation {};

/// SwiGLU over the last dimension, of which the first half are gates and the second half values:
/// [..., 2 n] to [..., n], silu(gate) value with silu(x) = x / (1 + e^-x).
struct SwiGluOperation {};

/// What the heads of an attention are like. Without any value they are those of GPT-2.
struct HeadForm {
  /// The number of heads of keys and values, each of which serves as many consecutive heads of
  /// queries (grouped-query attention); absent: as many as of queries.
  std::optional<std::int64_t> kv_heads = {};
  /// The width of each head; absent: hidden / heads.
  std::optional<std::int64_t> width = {};
  /// If present, queries and keys are turned by their positions, as in Llama: numbers i and
  /// i + width / 2 of a head, as a point in the plane, by position * rotary_base^(-2 i / width)
  /// radians. At least 1; the width must be even.
  std::optional<double> rotary_base = {};
};

/// Multi-head self-attention with its four projections, over [sequence, hidden].
struct AttentionOperation {
  std::int64_t hidden = 0;
  /// The heads of queries.
  std::int64_t heads = 0;
  bool causal = false;
  HeadForm form = {};
  /// Whether the projections have biases.
  bool bias = true;
};

/// Returns the number of heads of keys and values.
std::int64_t kv_heads_of(const AttentionOperation& operation);
/// Returns the width of each head. Requires: there is at least one head.
std::int64_t head_width_of(const AttentionOperation& operation);

enum class NormKind { LayerNorm, RmsNorm };
enum class FeedForwardKind { Gelu, SwiGlu };

/// A mixture of experts in place of a feed-forward: a router without bias scores all experts for
/// each position, and the output is the sum of those with the largest scores, of equals the first,
/// each times its share of their softmax. No position is dropped.
struct ExpertsForm {
  std::int64_t count = 1;
  /// The experts of each position, at most all.
  std::int64_t per_token = 1;
};

/// Computes y = x + attention(norm(x)), then y + linear(activation(linear(norm(y)))): a pre-norm
/// block as in GPT-2, as in Llama, or with experts as in Mixtral.
struct TransformerBlockOperation {
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  /// The width of the activation's output, with experts of each of them.
  std::int64_t feed_forward = 0;
  std::int64_t sequence = 0;
  bool causal = false;
  HeadForm form = {};
  /// Whether the four linear layers have biases; those of experts have none.
  bool bias = true;
  NormKind norm = NormKind::LayerNorm;
  FeedForwardKind activation = FeedForwardKind::Gelu;
  std::optional<ExpertsForm> experts = {};
};

/// Returns the attention of a block.
AttentionOperation attention_of(const TransformerBlockOperation& block);
/// Whether a block is as in GPT-2: with layer norms, biases, GELU, no experts, and heads without
/// rotary positions, each of hidden / heads and with keys and values of its own.
bool is_gpt2_block(const TransformerBlockOperation& block);
/// Returns the outputs of the linear layer before a block's activation: `feed_forward`, and twice
/// that for SwiGLU.
std::int64_t expanded_width_of(const TransformerBlockOperation& block);

/// Convolution over [channels, height, width] with a square kernel and zero padding.
struct ConvolutionOperation {
  std::int64_t in_channels = 0;
  std::int64_t out_channels = 0;
  /// The height and the width of the input.
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t kernel = 0;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
};

/// The maximum of each square window over [channels, height, width].
struct MaxPoolOperation {
  std::int64_t kernel = 0;
  std::int64_t stride = 0;
};

/// Reshapes any sample to one dimension.
struct FlattenOperation {};

/// Computes one loss per sample: the mean over the sample's positions of -log softmax(x)[target],
/// with the softmax over the last dimension.
struct SoftmaxCrossEntropyOperation {
  std::int64_t classes = 0;
};

using Operation = std::variant<EmbeddingOperation, PositionEmbeddingOperation, LinearOperation,
                               LayerNormOperation, RmsNormOperation, ReluOperation, GeluOperation,
                               SwiGluOperation, AttentionOperation, TransformerBlockOperation,
                               ConvolutionOperation, MaxPoolOperation, FlattenOperation,
                               SoftmaxCrossEntropyOperation>;

/// Returns a violation for dimensions that are inconsistent with each other; the place is "/" and
/// the key in the document, or empty where no single key is at fault. Requires: every dimension is
/// at least 1 (a padding at least 0) and at most its maximum.
std::vector<Violation> violations_of(const Operation& operation);

}  // namespace dapple
