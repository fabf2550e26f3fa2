// The functions of cuBLASLt that are used, forwarded to the library.
#include <cublasLt.h>
#include <fmt/format.h>

#include "dapple/cuda/shared_library.h"

namespace {

dapple::cuda::SharedLibrary& library() {
  static dapple::cuda::SharedLibrary loaded(fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR),
                                            DAPPLE_CUBLAS_LIBRARY);
  return loaded;
}

}  // namespace

DAPPLE_FORWARD(library(), cublasStatus_t, cublasLtCreate, (cublasLtHandle_t * created), (created))
DAPPLE_FORWARD(library(), cublasStatus_t, cublasLtDestroy, (cublasLtHandle_t handle), (handle))
DAPPLE_FORWARD(library(), const char*, cublasLtGetStatusString, (cublasStatus_t status), (status))
DAPPLE_FORWARD(library(), cublasStatus_t, cublasLtMatrixLayoutCreate,
               (cublasLtMatrixLayout_t * created, cudaDataType type, uint64_t rows,
                uint64_t columns, int64_t leading),
               (created, type, rows, columns, leading))
DAPPLE_FORWARD(library(), cublasStatus_t, cublasLtMatrixLayoutDestroy,
               (cublasLtMatrixLayout_t layout), (layout))
DAPPLE_FORWARD(library(), cublasStatus_t, cublasLtMatmulDescCreate,
               (cublasLtMatmulDesc_t * created, cublasComputeType_t type, cudaDataType_t scale),
               (created, type, scale))
DAPPLE_FORWARD(library(), cublasStatus_t, cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t product),
               (product))
DAPPLE_FORWARD(library(), cublasStatus_t, cublasLtMatmulDescSetAttribute,
               (cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute,
                const void* value, size_t size),
               (product, attribute, value, size))
DAPPLE_FORWARD(library(), cublasStatus_t, cublasLtMatmulPreferenceCreate,
               (cublasLtMatmulPreference_t * created), (created))
DAPPLE_FORWARD(library(), cublasStatus_t, cublasLtMatmulPreferenceDestroy,
               (cublasLtMatmulPreference_t preference), (preference))
DAPPLE_FORWARD(library(), cublasStatus_t, cublasLtMatmulPreferenceSetAttribute,
               (cublasLtMatmulPreference_t preference,
                cublasLtMatmulPreferenceAttributes_t attribute, const void* value, size_t size),
               (preference, attribute, value, size))
DAPPLE_FORWARD(library(), cublasStatus_t, cublasLtMatmulAlgoGetHeuristic,
               (cublasLtHandle_t handle, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                cublasLtMatmulPreference_t preference, int most,
                cublasLtMatmulHeuristicResult_t results[], int* count),
               (handle, product, a, b, c, d, preference, most, results, count))
DAPPLE_FORWARD(library(), cublasStatus_t, cublasLtMatmul,
               (cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void* alpha,
                const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_size,
                cudaStream_t stream),
               (handle, product, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout,
                algorithm, workspace, workspace_size, stream))
