// Attention by kernels of our own, of any width, that never write the scores: for single precision,
// and where the library has none.
#pragma once

#include "cuda/memory/fused_attention.h"

namespace dapple::cuda {

/// Source: Dao et al. 2022, algorithms 1 and 4, with a kernel each for the gradients of queries and
/// those of keys and values, so that nothing is added up by atomics.
void attend(Device& device, const AttentionShape& shape, const AttentionForward& arrays);
void attend_backward(Device& device, const AttentionShape& shape, const AttentionBackward& arrays);

}  // namespace dapple::cuda
