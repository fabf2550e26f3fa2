// The heads of grouped-query attention with rotary positions, written as the attention kernels take
// them: as many heads of keys and values as of queries, each of them turned by its position.
#pragma once

#include <optional>

#include "dapple/cuda/memory/tensor.h"

namespace dapple::cuda {

/// The heads in rows of [heads + 2 kv_heads, width], queries, keys and values, one row for each
/// position of each sample. A head of keys and values serves heads / kv_heads consecutive heads of
/// queries.
struct HeadGroups {
  std::int64_t sequence = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t width = 0;
  // As HeadForm::rotary_base.
  std::optional<double> rotary_base = {};
};

/// Writes rows of [3, heads, width] with a copy of its keys and values for each head of queries,
/// after turning queries and keys.
void spread_heads(Device& device, const HeadGroups& groups, View from, View to);

/// Computes the gradient of what spread_heads() has read from that of what it has written: copies
/// are added up in single precision, in the order of the heads, and turned back.
void gather_heads(Device& device, const HeadGroups& groups, View from, View to);

}  // namespace dapple::cuda
