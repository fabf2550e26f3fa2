// ReLU and GELU, and their gradients. All functions are enqueued; `to` may be `from`.
#pragma once

#include "dapple/cuda/memory/tensor.h"

namespace dapple::cuda {

void relu(const Stream& stream, View from, View to);
/// Computes x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3), after Hendrycks and
/// Gimpel 2016, section 2.
void gelu(const Stream& stream, View from, View to);

/// Computes gradient *= derivative at `input`.
void relu_gradient(const Stream& stream, View input, View gradient);
void gelu_gradient(const Stream& stream, View input, View gradient);

}  // namespace dapple::cuda
