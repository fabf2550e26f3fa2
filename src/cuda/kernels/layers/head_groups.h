// The heads of grouped-query attention with rotary positions, written as the attention kernels take
// them: as many heads of keys and values as of queries, each of them turned by its position.
#pragma once

#include <optional>

#include "cuda/kernels/layers/row_positions.h"
#include "dapple/cuda/memory/tensor.h"

namespace dapple::cuda {

/// The heads in rows of [heads + 2 kv_heads, width], queries, keys and values, one row for each
/// position of each sample; there may be no queries, or neither keys nor values.
struct HeadGroups {
  // The rows of a sample.
  std::int64_t sequence = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  // The consecutive heads of queries that a head of keys and values serves.
  std::int64_t copies = 1;
  std::int64_t width = 0;
  // As HeadForm::rotary_base.
  std::optional<double> rotary_base = {};
  // The position of each row of a sample.
  RowPositions positions = {};

  std::int64_t columns() const { return (heads + 2 * kv_heads) * width; }
  std::int64_t spread_columns() const { return (heads + 2 * kv_heads * copies) * width; }
};

/// Writes rows of [heads + 2 kv_heads copies, width] with so many copies of keys and values, after
/// turning queries and keys.
void spread_heads(Device& device, const HeadGroups& groups, View from, View to);

/// Computes the gradient of what spread_heads() has read from that of what it has written: copies
/// are added up in single precision, in the order of the heads, and turned back.
void gather_heads(Device& device, const HeadGroups& groups, View from, View to);

}  // namespace dapple::cuda
