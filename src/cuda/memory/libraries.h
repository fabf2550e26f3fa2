// The third-party libraries that a device uses.
#pragma once

#include "cuda/memory/fused_attention.h"
#include "cuda/memory/matrix_product.h"

namespace dapple::cuda {

class Libraries {
 public:
  MatrixProducts products;
  FusedAttention attention;
};

}  // namespace dapple::cuda
