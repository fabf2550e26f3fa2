// Attention by a library's fused kernels, which keep scores on chip.
#pragma once

#include <cstdint>
#include <memory>

#include "dapple/cuda/memory/device.h"
#include "dapple/cuda/memory/tensor.h"

namespace dapple::cuda {

/// The shape of softmax(Q K^T / sqrt(width)) V for each head of each sample. Queries, keys and
/// values of a position lie one after another, each head by head:
/// [samples, sequence, 3, heads, width].
struct AttentionShape {
  std::int64_t samples = 0;
  std::int64_t sequence = 0;
  std::int64_t heads = 0;
  std::int64_t width = 0;
  bool is_causal = false;
  Type type = Type::Float32;

  friend auto operator<=>(const AttentionShape&, const AttentionShape&) = default;
};

struct AttentionForward {
  View queries_keys_values;
  // [samples, sequence, heads, width].
  View output;
  // [samples, heads, sequence], Float32: the logarithms of the sums of the exponentials of the
  // scaled scores.
  View log_sums;
};

struct AttentionBackward {
  AttentionForward forward;
  View output_gradient;  // shaped as the output
  View input_gradient;   // shaped as queries_keys_values
};

class FusedAttention {
 public:
  FusedAttention();
  ~FusedAttention();
  FusedAttention(const FusedAttention&) = delete;
  FusedAttention& operator=(const FusedAttention&) = delete;

  /// Whether the library has kernels for both directions on this GPU. The first call for a shape is
  /// slow.
  bool supports(Device& device, const AttentionShape& shape);
  /// Enqueues the computation on the compute stream. Requires: the shape is supported.
  void run(Device& device, const AttentionShape& shape, const AttentionForward& arrays);
  void run(Device& device, const AttentionShape& shape, const AttentionBackward& arrays);

 private:
  class Plans;
  std::unique_ptr<Plans> plans_;
};

}  // namespace dapple::cuda
