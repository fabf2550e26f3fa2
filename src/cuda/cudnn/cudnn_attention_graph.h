// Attention as a graph of cuDNN, in the form that its fused kernels match.
#pragma once

#include "cuda/cudnn/cudnn_graph.h"
#include "cuda/memory/fused_attention.h"

namespace dapple::cuda {

/// The numbers of the graphs' tensors.
enum : std::int64_t {
  kQueries = 1,
  kKeys,
  kValues,
  kOutput,
  kLogSums,
  kOutputGradient,
  kQueryGradient,
  kKeyGradient,
  kValueGradient,
  // The gradient of the queries, Float. It must be zero before a run with cuDNN before 9.6.
  kQuerySum,
};

/// Whether a version of cuDNN (cudnnGetVersion()) computes attention of this shape correctly, which
/// it does not report itself. Source: release notes of cuDNN 9, and what its own frontend rejects.
bool is_sound(const AttentionShape& shape, std::size_t version);

CudnnGraph forward_graph(const AttentionShape& shape);

/// The gradients of queries are summed in kQuerySum, [samples, heads, sequence, width]: without it,
/// cuDNN 9.19 requires a workspace as large as all scores.
CudnnGraph backward_graph(const AttentionShape& shape);

}  // namespace dapple::cuda
