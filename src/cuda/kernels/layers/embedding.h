// Token and position embeddings, and their gradients.
#pragma once

#include "dapple/cuda/memory/tensor.h"

namespace dapple::cuda {

/// The arrays of output[row] = table[tokens[row] - first_token] + positions[row mod sequence], the
/// latter only if there are positions. A token that the table has not has a vector of zeros.
/// Requires: tokens are Int32.
struct TokenVectors {
  std::int64_t hidden = 0;
  // The token whose vector is the table's first one.
  std::int64_t first_token = 0;
  View tokens;
  View table;
  View positions;
  View output;
};
void look_up(const Stream& stream, const TokenVectors& arrays);

/// Computes vectors[row] += positions[row mod sequence].
void add_positions(const Stream& stream, View positions, View vectors);

/// The arrays of sums[tokens[row] - first_token] += gradient[row], for the tokens that the sums
/// have. If a token occurs several times, the order of the additions may vary.
struct TokenGradients {
  std::int64_t hidden = 0;
  std::int64_t first_token = 0;
  View tokens;
  View gradient;
  View sums;
};
void add_token_gradients(const Stream& stream, const TokenGradients& arrays);

/// Computes sums[position] += gradient[sample, position] over the samples, always in their order.
void add_position_gradients(const Stream& stream, View gradient, View sums);

}  // namespace dapple::cuda
