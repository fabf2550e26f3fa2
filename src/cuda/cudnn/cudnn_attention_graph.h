// Attention as a graph of cuDNN's, in the form that its fused kernels are matched by.
#pragma once

#include "cuda/cudnn/cudnn_graph.h"
#include "cuda/memory/fused_attention.h"

namespace dapple::cuda {

/// Numbers of the graphs' tensors.
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
  kQuerySum,  // gradient of the queries, Float, to be zero before where cuDNN is older than 9.6
};

/// Whether a version of cuDNN (cudnnGetVersion()) computes it as it should, which it does not say
/// itself. Source: release notes of cuDNN 9, and what its own frontend refuses.
bool is_sound(const AttentionShape& shape, std::size_t version);

CudnnGraph forward_graph(const AttentionShape& shape);

/// Gradients of queries are added up in kQuerySum, [samples, heads, sequence, width]: without it
/// cuDNN 9.19 asks for a workspace as large as all scores.
CudnnGraph backward_graph(const AttentionShape& shape);

}  // namespace dapple::cuda
