// Products of matrices, with what can be done to the result before it is written. Matrices are
// stored row by row, without gaps.
#pragma once

#include <cstdint>
#include <memory>

#include "dapple/cuda/memory/device.h"
#include "dapple/cuda/memory/tensor.h"

namespace dapple::cuda {

/// A factor: [rows, columns] as it is multiplied; stored that way round, or as its transpose.
struct MatrixOperand {
  View numbers;
  bool is_transposed = false;
  std::int64_t stride = 0;  // numbers from a stored row to the next; 0: no gaps
};

/// result = activation(left right + addend + bias), all factors of the same type.
struct Product {
  std::int64_t rows = 0;     // of left and result
  std::int64_t depth = 0;    // columns of left, rows of right
  std::int64_t columns = 0;  // of right and result
  MatrixOperand left;
  MatrixOperand right;
  View result;                     // of the factors' type, or Float32
  std::int64_t result_stride = 0;  // likewise; with gaps there is only the product
  View addend = {};  // as the result, which it may be itself; nothing is added if empty
  View bias = {};    // one number of the factors' type for each column; likewise

  enum class Activation {
    None,
    Gelu,          // of the sum, which is written to gelu_input
    GeluGradient,  // the sum times the slope of GELU at gelu_input
  };
  Activation activation = Activation::None;
  View gelu_input = {};  // shaped as the result, of its type
};

/// Computed in single precision, or by tensor cores that add up in it.
class MatrixProducts {
 public:
  MatrixProducts();
  ~MatrixProducts();
  MatrixProducts(const MatrixProducts&) = delete;
  MatrixProducts& operator=(const MatrixProducts&) = delete;

  /// Enqueues it on the compute stream. Requires: nothing is empty; GELU with a bias and no addend,
  /// its gradient with neither.
  void multiply(Device& device, const Product& product);

 private:
  class Plans;
  std::unique_ptr<Plans> plans_;
};

}  // namespace dapple::cuda
