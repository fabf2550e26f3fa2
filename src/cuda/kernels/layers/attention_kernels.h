// The project's own attention kernels, for any width. They never store the scores in memory, and
// are used for single precision and where the library has no kernels.
#pragma once

#include "cuda/kernels/layers/row_positions.h"
#include "cuda/memory/fused_attention.h"

namespace dapple::cuda {

/// Source: Dao et al. 2022, algorithms 1 and 4, with separate kernels for the gradients of queries
/// and for those of keys and values, so that no atomic additions are needed.
void attend(Device& device, const AttentionShape& shape, const AttentionForward& arrays);
void attend_backward(Device& device, const AttentionShape& shape, const AttentionBackward& arrays);

/// Attention of the queries of some positions to the keys of whole sequences.
struct ContextShape {
  std::int64_t samples = 0;
  std::int64_t queries = 0;  // of a sample
  std::int64_t keys = 0;     // of a sample
  std::int64_t heads = 0;
  std::int64_t width = 0;
  bool is_causal = false;
  // Those of the queries, ascending.
  RowPositions positions = {};
};

struct ContextForward {
  View queries;      // [samples, queries, heads, width]
  View keys_values;  // [samples, keys, 2, heads, width]
  View output;       // shaped as the queries
  View log_sums;     // [samples, heads, queries], as those of AttentionForward
};

struct ContextBackward {
  ContextForward forward;
  View output_gradient;
  View query_gradient;      // shaped as the queries
  View key_value_gradient;  // shaped as the keys and values
};

void attend(Device& device, const ContextShape& shape, const ContextForward& arrays);
void attend_backward(Device& device, const ContextShape& shape, const ContextBackward& arrays);

}  // namespace dapple::cuda
