// What a device uses of other people's libraries.
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
