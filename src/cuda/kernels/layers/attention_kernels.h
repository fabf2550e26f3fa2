// The project's own attention kernels, for any width. They never store the scores in memory, and
// are used for single precision and where the library has no kernels.
#pragma once

#include "cuda/memory/fused_attention.h"

namespace dapple::cuda {

/// Source: Dao et al. 2022, algorithms 1 and 4, with separate kernels for the gradients of queries
/// and for those of keys and values, so that no atomic additions are needed.
void attend(Device& device, const AttentionShape& shape, const AttentionForward& arrays);
void attend_backward(Device& device, const AttentionShape& shape, const AttentionBackward& arrays);

}  // namespace dapple::cuda
