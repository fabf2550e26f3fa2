// Which experts each position has, and the rows of their feed-forwards: nn's Routing on a GPU. All
// results are deterministic.
//
// An entry is a position and one of its experts; entry e is of position e / (experts of each).
// Entries have rows, those of one expert after those of another, in the order of positions.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "dapple/cuda/memory/tensor.h"

namespace dapple::cuda {

/// Chooses the experts with the largest scores for each position, of equals the first, and their
/// shares: the softmax over the scores of those chosen.
struct ExpertChoice {
  std::int64_t experts = 0;
  std::int64_t per_token = 0;
  View scores;  // Float32 [positions, experts]
  View chosen;  // Int32 [positions, per_token]
  View shares;  // Float32 [positions, per_token]
};
void choose_experts(const Stream& stream, const ExpertChoice& choice);

/// Writes how many entries each expert has, as Int32.
void count_entries(const Stream& stream, View chosen, View counts);

/// Whether rows follow the rows of all experts before without gaps, or are padded as
/// padded_rows_of() says, so that the rows of experts have few different numbers and products of
/// few shapes are enqueued.
enum class ExpertRows { Dense, Padded };

/// Returns the rows of an expert with padding behind those of its entries: an eighth more at most.
__host__ __device__ inline constexpr std::int32_t padded_rows_of(std::int32_t entries) {
  constexpr std::int32_t kSteps = 8;
  std::int32_t step = 1;
  while (2 * kSteps * step <= entries) step *= 2;
  return (entries + step - 1) / step * step;
}

/// Gives each entry a row: `places` has one for each entry, and `order` the entry of each row, -1
/// for padding. All are Int32.
struct EntryRows {
  ExpertRows rows = ExpertRows::Dense;
  View chosen;
  View counts;
  View places;
  View order;
};
void place_entries(const Stream& stream, const EntryRows& arrays);

/// Sets row i to row index[i] / divisor of `from`, times factors[index[i]] if there are any, and to
/// zeros where the index is -1. Requires: Int32 indices, Float32 factors.
struct TakenRows {
  std::int64_t columns = 0;
  std::int64_t divisor = 1;
  View index;
  View factors = {};
  View from;
  View to;
};
void take_rows(const Stream& stream, const TakenRows& rows);

/// Sets row index[i] of `to` to row i of `from`, unless the index is -1.
void put_rows(const Stream& stream, std::int64_t columns, View index, View from, View to);

/// Sums the rows of each position's entries, each times its share if there are any.
struct CombinedRows {
  std::int64_t columns = 0;
  std::int64_t per_token = 0;
  View places;
  View shares = {};
  View rows;
  View positions;
};
void combine_rows(const Stream& stream, const CombinedRows& rows);

/// Writes the product of each row with the row of the same number, in single precision.
void take_row_products(const Stream& stream, std::int64_t columns, View left, View right,
                       View products);

/// The gradient of the scores, given by row the product of the gradient of its output, which is
/// multiplied by the share already, and of the output. Only the scores of a position's experts have
/// one.
struct ScoreGradients {
  std::int64_t experts = 0;
  std::int64_t per_token = 0;
  View chosen;
  View shares;
  View places;
  View products;  // Float32, by row
  View gradient;  // [positions, experts]
};
void score_gradients(const Stream& stream, const ScoreGradients& arrays);

}  // namespace dapple::cuda
