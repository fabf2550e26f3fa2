// Attention by whichever kernels are the fastest for a shape.
#pragma once

#include "dapple/profile/operation.h"
#include "fused_attention.h"

namespace dapple::cuda {

/// Of an input [samples, sequence, 3 hidden] or an output [samples, sequence, hidden].
AttentionShape shape_of(const AttentionOperation& operation, const Tensor& tensor);

void attend_fastest(Device& device, const AttentionShape& shape, const AttentionForward& arrays);
void attend_fastest(Device& device, const AttentionShape& shape, const AttentionBackward& arrays);

}  // namespace dapple::cuda
