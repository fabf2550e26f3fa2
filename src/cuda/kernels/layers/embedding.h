// Token and position embeddings, and their gradients.
#pragma once

#include "dapple/cuda/memory/tensor.h"

namespace dapple::cuda {

/// The arrays of output[row] = table[tokens[row]] + positions[row mod sequence], the latter only if
/// there are positions. Requires: tokens are Int32, at least zero and less than the rows of the
/// table.
struct TokenVectors {
  std::int64_t hidden = 0;
  View tokens;
  View table;
  View positions;
  View output;
};
void look_up(const Stream& stream, const TokenVectors& arrays);

/// Computes vectors[row] += positions[row mod sequence].
void add_positions(const Stream& stream, View positions, View vectors);

/// Computes sums[tokens[row]] += gradient[row]. If a token occurs several times, the order of the
/// additions may vary.
void add_token_gradients(const Stream& stream, std::int64_t hidden, View tokens, View gradient,
                         View sums);

/// Computes sums[position] += gradient[sample, position] over the samples, always in their order.
void add_position_gradients(const Stream& stream, View gradient, View sums);

}  // namespace dapple::cuda
