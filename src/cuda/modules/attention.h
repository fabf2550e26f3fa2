// Attention by the fastest available kernels for a shape.
#pragma once

#include "cuda/memory/fused_attention.h"
#include "dapple/profile/operation.h"

namespace dapple::cuda {

/// Returns the shape for an input [samples, sequence, 3 hidden] or an output [samples, sequence,
/// hidden].
AttentionShape shape_of(const AttentionOperation& operation, const DeviceTensor& tensor);

void attend_fastest(Device& device, const AttentionShape& shape, const AttentionForward& arrays);
void attend_fastest(Device& device, const AttentionShape& shape, const AttentionBackward& arrays);

}  // namespace dapple::cuda
