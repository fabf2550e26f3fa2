// Matrix products with optional operations on the result before it is written. Matrices are stored
// row by row.
#pragma once

#include <cstdint>
#include <memory>

#include "dapple/cuda/memory/device.h"
#include "dapple/cuda/memory/tensor.h"

namespace dapple::cuda {

/// A factor of shape [rows, columns], stored either so or as its transpose.
struct MatrixOperand {
  View numbers;
  bool is_transposed = false;
  // The distance between stored rows, in numbers; 0: no gaps.
  std::int64_t stride = 0;
};

/// The product result = activation(left right + addend + bias); all factors have the same type.
struct Product {
  std::int64_t rows = 0;     // of left and result
  std::int64_t depth = 0;    // columns of left, rows of right
  std::int64_t columns = 0;  // of right and result
  MatrixOperand left;
  MatrixOperand right;
  // Has the factors' type, or Float32.
  View result;
  // The stride of the result, like MatrixOperand::stride. With gaps there must be neither addend,
  // bias nor activation.
  std::int64_t result_stride = 0;
  // Shaped as the result, and possibly the result itself; empty: nothing is added.
  View addend = {};
  // One number of the factors' type for each column; empty: nothing is added.
  View bias = {};

  enum class Activation {
    None,
    // GELU of the sum, which is written to gelu_input.
    Gelu,
    // The sum times the derivative of GELU at gelu_input.
    GeluGradient,
  };
  Activation activation = Activation::None;
  // Has the shape and the type of the result.
  View gelu_input = {};
};

/// Computes products in single precision, or on tensor cores that accumulate in single precision.
class MatrixProducts {
 public:
  MatrixProducts();
  ~MatrixProducts();
  MatrixProducts(const MatrixProducts&) = delete;
  MatrixProducts& operator=(const MatrixProducts&) = delete;

  /// Enqueues a product on the compute stream. Requires: nothing is empty; GELU with a bias and
  /// without addend, its gradient with neither.
  void multiply(Device& device, const Product& product);

  /// Returns the largest workspace of a product so far; at most kProductWorkspace.
  Bytes most_workspace() const;

 private:
  class Plans;
  std::unique_ptr<Plans> plans_;
};

}  // namespace dapple::cuda
