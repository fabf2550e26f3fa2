// Matrix products by Eigen, whose namespace is renamed for each instruction set so that no two sets
// share a function. Eigen's product kernel is called directly, as in Eigen's own BLAS, because the
// operators select other algorithms for small and for thin matrices, some of which sum in an order
// that depends on addresses.
#include <Eigen/Core>

#include "nn/kernels.h"

namespace dapple::nn::DAPPLE_KERNELS {
namespace {

using Index = Eigen::Index;
constexpr int kColumns = Eigen::ColMajor;
constexpr int kRows = Eigen::RowMajor;

/// Adds the transposed product right^T left^T to the transpose of the sum, whose columns are the
/// sum's rows.
template <int kLeftOrder, int kRightOrder>
void add(const StridedMatrix& left, const StridedMatrix& right, const ProductSum& to) {
  using Product =
      Eigen::internal::general_matrix_matrix_product<Index, float, kRightOrder, false, float,
                                                     kLeftOrder, false, kColumns, 1>;
  Eigen::internal::gemm_blocking_space<kColumns, float, float, Eigen::Dynamic, Eigen::Dynamic,
                                       Eigen::Dynamic>
      blocking(to.columns, to.rows, to.depth, 1, true);
  Product::run(to.columns, to.rows, to.depth, right.first, right.stride, left.first, left.stride,
               to.first, 1, to.stride, 1.0F, blocking, nullptr);
}

}  // namespace

void add_product(const StridedMatrix& left, const StridedMatrix& right, const ProductSum& to) {
  if (left.transposed) return add<kRows, kColumns>(left, right, to);
  if (right.transposed) return add<kColumns, kRows>(left, right, to);
  add<kColumns, kColumns>(left, right, to);
}

}  // namespace dapple::nn::DAPPLE_KERNELS
