// Attention by the fastest available kernels for a shape.
#pragma once

#include "cuda/memory/fused_attention.h"
#include "dapple/profile/operation.h"

namespace dapple::cuda {

/// Returns the shape for an input [samples, sequence, 3 heads width] or an output [samples,
/// sequence, heads width]. Keys and values have as many heads as queries there.
AttentionShape shape_of(const AttentionOperation& operation, const DeviceTensor& tensor);

/// Whether queries, keys and values must pass through make_spread_heads() before attention.
bool has_spread_heads(const AttentionOperation& operation);

void attend_fastest(Device& device, const AttentionShape& shape, const AttentionForward& arrays);
void attend_fastest(Device& device, const AttentionShape& shape, const AttentionBackward& arrays);

}  // namespace dapple::cuda
