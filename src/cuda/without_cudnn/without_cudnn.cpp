// The replacement without cuDNN: attention by the project's own kernels.
#include "cuda/memory/fused_attention.h"
#include "dapple/core/error.h"

namespace dapple::cuda {

class FusedAttention::Plans {};

FusedAttention::FusedAttention() = default;
FusedAttention::~FusedAttention() = default;

bool FusedAttention::supports(Device&, const AttentionShape&) {
  return false;
}

void FusedAttention::run(Device&, const AttentionShape&, const AttentionForward&) {
  throw Bug("attention is asked of a library that there is not");
}

void FusedAttention::run(Device&, const AttentionShape&, const AttentionBackward&) {
  throw Bug("attention is asked of a library that there is not");
}

}  // namespace dapple::cuda
