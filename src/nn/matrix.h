// Eigen views of tensors and parameters. Nothing is copied: the viewed data must outlive the view.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <span>

#include "dapple/core/error.h"
#include "dapple/nn/tensor.h"
#include "nn/kernels.h"

namespace dapple::nn {

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Matrix = Eigen::Map<RowMajor>;
using ConstMatrix = Eigen::Map<const RowMajor>;
using Vector = Eigen::Map<Eigen::RowVectorXf>;
using ConstVector = Eigen::Map<const Eigen::RowVectorXf>;
using Array = Eigen::Map<Eigen::ArrayXf>;
using ConstArray = Eigen::Map<const Eigen::ArrayXf>;

/// Returns a view of the values as rows of `columns` numbers. Requires: `columns` divides the
/// number of values.
inline Matrix rows_of(Tensor& tensor, std::int64_t columns) {
  return {tensor.values.data(), static_cast<std::int64_t>(tensor.values.size()) / columns, columns};
}
inline ConstMatrix rows_of(const Tensor& tensor, std::int64_t columns) {
  return {tensor.values.data(), static_cast<std::int64_t>(tensor.values.size()) / columns, columns};
}
inline Matrix rows_of(std::span<float> values, std::int64_t columns) {
  return {values.data(), static_cast<std::int64_t>(values.size()) / columns, columns};
}
inline ConstMatrix rows_of(std::span<const float> values, std::int64_t columns) {
  return {values.data(), static_cast<std::int64_t>(values.size()) / columns, columns};
}

inline Vector vector_of(std::span<float> values) {
  return {values.data(), static_cast<std::int64_t>(values.size())};
}
inline ConstVector vector_of(std::span<const float> values) {
  return {values.data(), static_cast<std::int64_t>(values.size())};
}

/// Returns a view of all values as one array, whatever their shape.
inline Array array_of(std::span<float> values) {
  return {values.data(), static_cast<std::int64_t>(values.size())};
}
inline ConstArray array_of(std::span<const float> values) {
  return {values.data(), static_cast<std::int64_t>(values.size())};
}
inline Array array_of(Tensor& tensor) {
  return array_of(std::span<float>(tensor.values));
}
inline ConstArray array_of(const Tensor& tensor) {
  return array_of(std::span<const float>(tensor.values));
}

/// A factor of a product with its dimensions.
struct Operand {
  StridedMatrix factor;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

template <class Rows>
Operand plain(const Rows& matrix) {
  return {{matrix.data(), matrix.outerStride(), false}, matrix.rows(), matrix.cols()};
}
template <class Rows>
Operand transposed(const Rows& matrix) {
  return {{matrix.data(), matrix.outerStride(), true}, matrix.cols(), matrix.rows()};
}

/// Computes to += left right with the kernels in use. Requires: not both factors are transposed.
template <class Rows>
void add_product(const Operand& left, const Operand& right, Rows&& to) {
  check(left.columns == right.rows && to.rows() == left.rows && to.cols() == right.columns,
        "factors of a product do not fit each other");
  if (left.columns == 0 || to.size() == 0) return;
  kernels().add_product(left.factor, right.factor,
                        {to.data(), to.outerStride(), left.rows, right.columns, left.columns});
}

/// Adds the rows to `sum` one after another, so that the additions are made in the order of the
/// rows.
template <class Rows>
void add_rows(const Rows& rows, Vector sum) {
  for (Eigen::Index row = 0; row < rows.rows(); ++row) sum += rows.row(row);
}

}  // namespace dapple::nn
