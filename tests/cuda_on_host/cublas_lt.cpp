// cuBLASLt as far as src/cuda/cublas/cublas_product.cpp uses it, as its documentation says what it
// does: on the host, one number after another. So that file can be tested where there is no GPU.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "streams.h"

namespace {

struct Operation {
  cublasOperation_t of_a = CUBLAS_OP_N;
  cublasOperation_t of_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  void* aux = nullptr;
  std::int64_t aux_stride = 0;
};

/// Column by column, `stride` numbers from one to the next.
struct Layout {
  cudaDataType_t type;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t stride;
};

Operation& operation_of(cublasLtMatmulDesc_t handle) {
  return *reinterpret_cast<Operation*>(handle);
}
const Layout& layout_of(cublasLtMatrixLayout_t handle) {
  return *reinterpret_cast<const Layout*>(handle);
}

double number_at(const void* numbers, cudaDataType_t type, std::int64_t i) {
  switch (type) {
    case CUDA_R_16BF:
      return static_cast<double>(__bfloat162float(static_cast<const __nv_bfloat16*>(numbers)[i]));
    case CUDA_R_16F:
      return static_cast<double>(__half2float(static_cast<const __half*>(numbers)[i]));
    default:
      return static_cast<double>(static_cast<const float*>(numbers)[i]);
  }
}

void set_number(void* numbers, cudaDataType_t type, std::int64_t i, double value) {
  const auto single = static_cast<float>(value);
  switch (type) {
    case CUDA_R_16BF:
      static_cast<__nv_bfloat16*>(numbers)[i] = __float2bfloat16_rn(single);
      return;
    case CUDA_R_16F:
      static_cast<__half*>(numbers)[i] = __float2half_rn(single);
      return;
    default:
      static_cast<float*>(numbers)[i] = single;
  }
}

double gelu_tanh(double x) {
  return std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x));
}

double gelu_slope(double x) {
  const double t = gelu_tanh(x);
  const double inner = std::sqrt(2 / 3.14159265358979323846) * (1 + 3 * 0.044715 * x * x);
  return (1 + t) / 2 + x * (1 - t * t) * inner / 2;
}

/// What becomes of a sum at [row, column] of the result.
double finished(const Operation& operation, cudaDataType_t type, std::int64_t row,
                std::int64_t column, double sum) {
  const std::int64_t at = column * operation.aux_stride + row;
  switch (operation.epilogue) {
    case CUBLASLT_EPILOGUE_BIAS:
      return sum + number_at(operation.bias, type, row);
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
      sum += number_at(operation.bias, type, row);
      set_number(operation.aux, type, at, sum);
      return sum * (1 + gelu_tanh(sum)) / 2;
    case CUBLASLT_EPILOGUE_DGELU:
      return sum * gelu_slope(number_at(operation.aux, type, at));
    default:
      return sum;
  }
}

struct Matrix {
  const void* numbers;
  Layout layout;

  double at(std::int64_t row, std::int64_t column) const {
    return number_at(numbers, layout.type, column * layout.stride + row);
  }
};

/// A call, with all that it may change once it has returned.
struct Matmul {
  Operation operation;
  float factor;
  float addend_factor;
  Matrix a;
  Matrix b;
  Matrix c;
  void* d;
  Layout layout_d;

  bool is_a_transposed() const { return operation.of_a == CUBLAS_OP_T; }
  bool is_b_transposed() const { return operation.of_b == CUBLAS_OP_T; }
  std::int64_t depth() const { return is_a_transposed() ? a.layout.rows : a.layout.columns; }

  bool fits() const {
    return (is_a_transposed() ? a.layout.columns : a.layout.rows) == layout_d.rows &&
           (is_b_transposed() ? b.layout.rows : b.layout.columns) == layout_d.columns &&
           (is_b_transposed() ? b.layout.columns : b.layout.rows) == depth() &&
           a.layout.type == b.layout.type;
  }

  double product_at(std::int64_t row, std::int64_t column) const {
    double sum = 0;
    for (std::int64_t k = 0; k < depth(); ++k) {
      sum += (is_a_transposed() ? a.at(k, row) : a.at(row, k)) *
             (is_b_transposed() ? b.at(column, k) : b.at(k, column));
    }
    return sum;
  }

  void run() const {
    for (std::int64_t column = 0; column < layout_d.columns; ++column) {
      for (std::int64_t row = 0; row < layout_d.rows; ++row) {
        double sum = static_cast<double>(factor) * product_at(row, column);
        // What is multiplied by zero is not read.
        if (addend_factor != 0) sum += static_cast<double>(addend_factor) * c.at(row, column);
        set_number(d, layout_d.type, column * layout_d.stride + row,
                   finished(operation, layout_d.type, row, column, sum));
      }
    }
  }
};

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new int);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<int*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasLtGetStatusString(cublasStatus_t) {
  return "an error";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* handle, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *handle = reinterpret_cast<cublasLtMatmulDesc_t>(new Operation);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t handle) {
  delete &operation_of(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t size) {
  Operation& operation = operation_of(handle);
  const auto set = [&](auto& field) {
    if (size != sizeof(field)) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&field, value, size);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(operation.of_a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(operation.of_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(operation.epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(operation.bias);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return set(operation.aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return set(operation.aux_stride);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* handle, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t stride) {
  const auto height = static_cast<std::int64_t>(rows);
  if (stride < height) return CUBLAS_STATUS_INVALID_VALUE;
  auto* layout = new Layout{type, height, static_cast<std::int64_t>(columns), stride};
  *handle = reinterpret_cast<cublasLtMatrixLayout_t>(layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t handle) {
  delete &layout_of(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* handle) {
  *handle = reinterpret_cast<cublasLtMatmulPreference_t>(new int);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t handle) {
  delete reinterpret_cast<int*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void*, std::size_t size) {
  const bool is_workspace = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
  return size == (is_workspace ? 8 : 4) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

/// GELU is done where the stride of its argument is one that the real ones can do, too; they refuse
/// others in either way.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t handle,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  const std::int64_t stride = operation_of(handle).aux_stride;
  *found = stride % 8 == 0 ? 1 : 0;
  if (stride % 2 != 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (*found == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  results[0] = {};
  results[0].workspaceSize = 1'000;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t handle, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t layout_a, const void* b,
                              cublasLtMatrixLayout_t layout_b, const void* beta, const void* c,
                              cublasLtMatrixLayout_t layout_c, void* d,
                              cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t*, void*,
                              std::size_t, cudaStream_t stream) {
  const Matmul matmul{.operation = operation_of(handle),
                      .factor = *static_cast<const float*>(alpha),
                      .addend_factor = *static_cast<const float*>(beta),
                      .a = {a, layout_of(layout_a)},
                      .b = {b, layout_of(layout_b)},
                      .c = {c, layout_of(layout_c)},
                      .d = d,
                      .layout_d = layout_of(layout_d)};
  if (!matmul.fits()) return CUBLAS_STATUS_INVALID_VALUE;
  cuda_on_host::enqueue(stream, [matmul] { matmul.run(); });
  return CUBLAS_STATUS_SUCCESS;
}
