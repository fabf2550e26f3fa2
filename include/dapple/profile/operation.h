// What a layer does, for those who run it: `op` of a layer in a profile.
//
// Sizes are per sample. A layer takes what the layer before it makes; the first one, which says by
// its own dimensions what it takes, the model's input: token numbers, a vector or an image.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "dapple/core/error.h"

namespace dapple {

/// The most of a vocabulary and of classes: their numbers are held in single precision.
inline constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24;
/// The most of every other dimension.
inline constexpr std::int64_t kMaxDimension = std::int64_t{1} << 20;

/// Tokens to vectors: [sequence] token numbers to [sequence, hidden], with a learned vector for
/// each position added (GPT-2, BERT) unless that is a layer of its own.
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

/// y = x W + b over the last dimension; transposed, W is held by outputs, so that it may be the
/// vectors of an embedding.
struct LinearOperation {
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  bool bias = true;
  bool transposed = false;
};

/// Over the last dimension, with scale and shift.
struct LayerNormOperation {
  std::int64_t hidden = 0;
};

struct ReluOperation {};
struct GeluOperation {};  // the tanh form, as GPT-2 has it

/// Multi-head self-attention with its four projections, over [sequence, hidden].
struct AttentionOperation {
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  bool causal = false;
};

/// x + attention(norm(x)), then y + linear(gelu(linear(norm(y)))): pre-norm, as in GPT-2.
struct TransformerBlockOperation {
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t feed_forward = 0;
  std::int64_t sequence = 0;
  bool causal = false;
};

/// Over [channels, height, width], square kernel, zero padding.
struct ConvolutionOperation {
  std::int64_t in_channels = 0;
  std::int64_t out_channels = 0;
  std::int64_t height = 0;  // of the input
  std::int64_t width = 0;
  std::int64_t kernel = 0;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
};

/// The largest of each square window, over [channels, height, width].
struct MaxPoolOperation {
  std::int64_t kernel = 0;
  std::int64_t stride = 0;
};

/// Any sample to one dimension.
struct FlattenOperation {};

/// Mean over a sample's positions of -log softmax(x)[target], over the last dimension: one number
/// per sample.
struct SoftmaxCrossEntropyOperation {
  std::int64_t classes = 0;
};

using Operation = std::variant<EmbeddingOperation, PositionEmbeddingOperation, LinearOperation,
                               LayerNormOperation, ReluOperation, GeluOperation, AttentionOperation,
                               TransformerBlockOperation, ConvolutionOperation, MaxPoolOperation,
                               FlattenOperation, SoftmaxCrossEntropyOperation>;

/// Dimensions that do not fit each other; each place is "/" and the key in the document. Requires:
/// every dimension is from 1, a padding from 0, to the most that it may be.
std::vector<Violation> violations_of(const Operation& operation);

}  // namespace dapple
