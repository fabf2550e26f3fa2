// Vectors of tokens and positions, and their gradients.
#pragma once

#include "dapple/cuda/memory/tensor.h"

namespace dapple::cuda {

/// output[row] = table[tokens[row]] + positions[row mod sequence], the latter if there are any.
/// Requires: tokens are Int32, from zero to less than the table has rows.
struct TokenVectors {
  std::int64_t hidden = 0;
  View tokens;
  View table;
  View positions;
  View output;
};
void look_up(const Stream& stream, const TokenVectors& arrays);

/// vectors[row] += positions[row mod sequence].
void add_positions(const Stream& stream, View positions, View vectors);

/// sums[tokens[row]] += gradient[row]. Where a token is there several times, the order of the
/// additions may change.
void add_token_gradients(const Stream& stream, std::int64_t hidden, View tokens, View gradient,
                         View sums);

/// sums[position] += gradient[sample, position] over the samples, always in their order.
void add_position_gradients(const Stream& stream, View gradient, View sums);

}  // namespace dapple::cuda
