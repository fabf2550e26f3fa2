// The arithmetic in which training on a CPU spends its time, compiled once for each instruction set
// and chosen when the program runs.
//
// What this file declares is compiled with instructions that the processor may not have. A function
// that two of its users shared would be linked once, from any of them, so nothing inline may stand
// here, and the files in kernels/ keep all that they use in namespaces of their own.
//
// Bits: all but products have one order of exactly rounded operations, the same in every set and
// for any address. A product has one order in each set for factors of given sizes, whatever their
// addresses and strides; the portable one is the same on every machine.
#pragma once

#include <cstdint>

namespace dapple::nn {

/// A factor of a product: rows of `stride` numbers from one's first to the next one's. Transposed,
/// they are the columns that the product takes.
struct StridedMatrix {
  const float* first = nullptr;
  std::int64_t stride = 0;
  bool transposed = false;
};

/// What a product is added to, row by row: [rows, columns], over a dimension of `depth` numbers.
struct ProductSum {
  float* first = nullptr;
  std::int64_t stride = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t depth = 0;
};

/// e^(x - largest) of numbers.
struct SoftmaxSum {
  float largest = 0;
  float sum = 0;
};

/// p' = keep p; g' = g + decay p'; mean and square are the moving means of g' and its square;
/// p' - rate mean / (sqrt(square) / root + epsilon).
struct AdamStep {
  float keep = 1;
  float decay = 0;
  float mean_share = 0;    // of the new value
  float square_keep = 0;   // of the old one
  float square_share = 0;  // of the new one
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

struct LayerNormRow {
  const float* normalised = nullptr;
  const float* gradient = nullptr;
  const float* scale = nullptr;
  float inverse = 0;  // 1 / deviation
};

/// to += left right. Requires: not both factors are transposed, and no dimension is zero.
using AddProduct = void (*)(const StridedMatrix& left, const StridedMatrix& right,
                            const ProductSum& to);

/// Functions of `count` numbers from an address on.
struct Elementwise {
  /// x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3).
  void (*gelu)(const float* from, float* to, std::int64_t count);
  /// Multiplies gradients by the slope of gelu at each x.
  void (*gelu_gradient)(const float* from, float* gradients, std::int64_t count);
  /// Numbers to e^(scale x), times what makes their sum `total`. The sum that is returned is before
  /// that. Requires: scale > 0 and count > 0.
  SoftmaxSum (*softmax)(float* values, std::int64_t count, float scale, float total);
  /// Gradients of shares, as softmax makes them with a total of one, to those of its numbers.
  void (*softmax_gradient)(const float* shares, float* gradients, std::int64_t count, float scale);
  /// Values to (x - mean) / deviation. Returns 1 / deviation, whose square is `least` more than the
  /// variance.
  float (*normalise)(float* values, std::int64_t count, float least);
  /// The gradient of what normalise was given, behind which stand a scale and a shift.
  void (*layer_norm_gradient)(const LayerNormRow& row, float* to, std::int64_t count);
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

/// Those in use (dapple/nn/kernel_choice.h).
const Kernels& kernels();

}  // namespace dapple::nn
