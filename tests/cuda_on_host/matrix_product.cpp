// For src/cuda/cublas/cublas_product.cpp: sums as they are written down.
#include "cuda/memory/matrix_product.h"

#include <cmath>
#include <tuple>

#include "cuda/kernels/numbers.h"
#include "dapple/core/error.h"

namespace dapple::cuda {
namespace {

float number_at(const View& view, std::int64_t i) {
  check(i >= 0 && i < view.count, "a product reads behind a matrix");
  float number = 0;
  with_floats(view.type, [&](auto of) {
    number = to_float(numbers_in<typename decltype(of)::Number>(view)[i]);
  });
  return number;
}

void set_number(const View& view, std::int64_t i, float number) {
  check(i >= 0 && i < view.count, "a product writes behind a matrix");
  with_floats(view.type, [&](auto of) {
    using Number = typename decltype(of)::Number;
    numbers_in<Number>(view)[i] = rounded_to<Number>(number);
  });
}

double gelu_tanh(double x) {
  return std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x));
}

double gelu(double x) {
  return x * (1 + gelu_tanh(x)) / 2;
}

double gelu_slope(double x) {
  const double t = gelu_tanh(x);
  const double inner = std::sqrt(2 / 3.14159265358979323846) * (1 + 3 * 0.044715 * x * x);
  return (1 + t) / 2 + x * (1 - t * t) * inner / 2;
}

void multiply_now(const Product& product) {
  const auto [rows, depth, columns] = std::tuple(product.rows, product.depth, product.columns);
  const auto stride_of = [](std::int64_t stride, std::int64_t length) {
    return stride == 0 ? length : stride;
  };
  const bool is_left_transposed = product.left.is_transposed;
  const bool is_right_transposed = product.right.is_transposed;
  const std::int64_t left_stride =
      stride_of(product.left.stride, is_left_transposed ? rows : depth);
  const std::int64_t right_stride =
      stride_of(product.right.stride, is_right_transposed ? depth : columns);
  const std::int64_t result_stride = stride_of(product.result_stride, columns);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      double sum = 0;
      for (std::int64_t k = 0; k < depth; ++k) {
        const std::int64_t left =
            is_left_transposed ? k * left_stride + row : row * left_stride + k;
        const std::int64_t right =
            is_right_transposed ? column * right_stride + k : k * right_stride + column;
        sum += static_cast<double>(number_at(product.left.numbers, left)) *
               static_cast<double>(number_at(product.right.numbers, right));
      }
      const std::int64_t at = row * columns + column;
      if (product.addend.count > 0) sum += static_cast<double>(number_at(product.addend, at));
      if (product.bias.count > 0) sum += static_cast<double>(number_at(product.bias, column));
      if (product.activation == Product::Activation::Gelu) {
        set_number(product.gelu_input, at, static_cast<float>(sum));
        sum = gelu(sum);
      } else if (product.activation == Product::Activation::GeluGradient) {
        sum *= gelu_slope(static_cast<double>(number_at(product.gelu_input, at)));
      }
      set_number(product.result, row * result_stride + column, static_cast<float>(sum));
    }
  }
}

}  // namespace

class MatrixProducts::Plans {};

MatrixProducts::MatrixProducts() = default;
MatrixProducts::~MatrixProducts() = default;

Bytes MatrixProducts::most_workspace() const {
  return {};
}

void MatrixProducts::multiply(Device& device, const Product& product) {
  cuda_on_host::enqueue(device.compute().handle(), [product] { multiply_now(product); });
}

}  // namespace dapple::cuda
