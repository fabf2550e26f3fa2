// The arithmetic that dominates training on a CPU, compiled once for each instruction set and
// selected at run time.
//
// The functions declared here are compiled with instructions that the processor may not have. The
// linker would keep one copy, from any of these compilations, of an inline function that two of
// them share; therefore this file contains no inline function, and the files in kernels/ keep
// everything that they use in namespaces of their own.
//
// Reproducibility: all functions but products perform exactly rounded operations in one order,
// which is the same for every instruction set and every address. The order of a product is fixed
// for an instruction set and the sizes of the factors, whatever their addresses and strides; that
// of the portable product is the same on every machine.
#pragma once

#include <cstdint>

namespace dapple::nn {

/// A factor of a product, stored in rows whose first elements are `stride` floats apart. If
/// `transposed` is set, these rows are the columns of the factor.
struct StridedMatrix {
  const float* first = nullptr;
  std::int64_t stride = 0;
  bool transposed = false;
};

/// The matrix to which a product is added: [rows, columns], stored row by row. `depth` is the size
/// of the inner dimension, over which the product sums.
struct ProductSum {
  float* first = nullptr;
  std::int64_t stride = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t depth = 0;
};

/// The largest number x, before scaling, and the sum of e^(scale (x - largest)).
struct SoftmaxSum {
  float largest = 0;
  float sum = 0;
};

/// The coefficients of one step: p' = keep p and g' = g + decay p'; mean and square are the moving
/// averages of g' and its square; the new parameter is
/// p' - rate mean / (sqrt(square) / root + epsilon).
struct AdamStep {
  float keep = 1;
  float decay = 0;
  /// The weight of the new value in `mean`.
  float mean_share = 0;
  /// The weights of the old and of the new value in `square`.
  float square_keep = 0;
  float square_share = 0;
  float rate = 0;
  float root = 1;
  float epsilon = 0;
};

struct AdamPlaces {
  float* parameters = nullptr;
  const float* gradients = nullptr;
  float* means = nullptr;
  float* squares = nullptr;
};

/// A row of a norm's backward.
struct NormRow {
  const float* normalised = nullptr;
  const float* gradient = nullptr;
  const float* scale = nullptr;
  float inverse = 0;  // 1 / deviation
};

/// A row of SwiGLU.
struct SwiGluRow {
  const float* gates = nullptr;
  const float* values = nullptr;
};

/// Where the gradients of a row of SwiGLU are written.
struct SwiGluPlaces {
  float* gates = nullptr;
  float* values = nullptr;
};

/// to += left right. Requires: not both factors are transposed, and no dimension is zero.
using AddProduct = void (*)(const StridedMatrix& left, const StridedMatrix& right,
                            const ProductSum& to);

/// Functions of `count` contiguous numbers.
struct Elementwise {
  /// Computes x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3).
  void (*gelu)(const float* from, float* to, std::int64_t count);
  /// Multiplies each gradient by the derivative of gelu at its x.
  void (*gelu_gradient)(const float* from, float* gradients, std::int64_t count);
  /// Computes gate / (1 + e^-gate) value.
  void (*swiglu)(const SwiGluRow& row, float* to, std::int64_t count);
  /// Computes the gradients of gates and values from those of the results.
  void (*swiglu_gradient)(const SwiGluRow& row, const float* gradients, const SwiGluPlaces& to,
                          std::int64_t count);
  /// Replaces each x by e^(scale x), normalised so that the sum is `total`. Returns the sum before
  /// the normalisation. Requires: scale > 0 and count > 0.
  SoftmaxSum (*softmax)(float* values, std::int64_t count, float scale, float total);
  /// Replaces the gradients of `shares`, which are the result of softmax with a total of one, by
  /// those of the inputs of softmax.
  void (*softmax_gradient)(const float* shares, float* gradients, std::int64_t count, float scale);
  /// Replaces each x by (x - mean) / deviation, where deviation^2 is the variance plus `least`.
  /// Returns 1 / deviation.
  float (*normalise)(float* values, std::int64_t count, float least);
  /// Replaces each x by x / deviation, where deviation^2 is the mean square plus `least`. Returns
  /// 1 / deviation.
  float (*normalise_square)(float* values, std::int64_t count, float least);
  /// Computes the gradient of the input of a layer norm: of normalise followed by scale and shift.
  void (*layer_norm_gradient)(const NormRow& row, float* to, std::int64_t count);
  /// Computes the gradient of the input of an RMS norm: of normalise_square followed by scale.
  void (*rms_norm_gradient)(const NormRow& row, float* to, std::int64_t count);
  void (*adam)(const AdamStep& step, const AdamPlaces& places, std::int64_t count);
};

struct Kernels {
  const char* name;
  AddProduct add_product;
  const Elementwise* elementwise;
};

namespace portable {
void add_product(const StridedMatrix& left, const StridedMatrix& right, const ProductSum& to);
}
namespace baseline {
void add_product(const StridedMatrix& left, const StridedMatrix& right, const ProductSum& to);
extern const Elementwise kElementwise;
}  // namespace baseline
namespace avx2 {
void add_product(const StridedMatrix& left, const StridedMatrix& right, const ProductSum& to);
extern const Elementwise kElementwise;
}  // namespace avx2
namespace avx512 {
void add_product(const StridedMatrix& left, const StridedMatrix& right, const ProductSum& to);
extern const Elementwise kElementwise;
}  // namespace avx512

/// Returns the kernels in use (dapple/nn/kernel_choice.h).
const Kernels& kernels();

}  // namespace dapple::nn
