// What a device uses of other people's libraries.
#pragma once

#include "fused_attention.h"
#include "matrix_product.h"

namespace dapple::cuda {

class Libraries {
 public:
  MatrixProducts products;
  FusedAttention attention;
};

}  // namespace dapple::cuda
