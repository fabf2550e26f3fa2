// ReLU, GELU and SwiGLU, and their gradients. All functions are enqueued; where both are as long,
// `to` may be `from`. Which kernel runs depends on the columns of rows, and not on their number.
#pragma once

#include <cstdint>

#include "dapple/cuda/memory/tensor.h"

namespace dapple::cuda {

void relu(const Stream& stream, std::int64_t columns, View from, View to);
/// Computes x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3), after Hendrycks and
/// Gimpel 2016, section 2.
void gelu(const Stream& stream, std::int64_t columns, View from, View to);

/// Computes gradient *= derivative at `input`.
void relu_gradient(const Stream& stream, std::int64_t columns, View input, View gradient);
void gelu_gradient(const Stream& stream, std::int64_t columns, View input, View gradient);

/// Computes silu(gate) value with silu(x) = x / (1 + e^-x), for rows that hold `columns` gates and
/// then as many values, after Shazeer 2020.
void swiglu(const Stream& stream, std::int64_t columns, View input, View to);
/// Computes the gradient of the input from that of the results.
void swiglu_gradient(const Stream& stream, std::int64_t columns, View input, View output_gradient,
                     View to);

}  // namespace dapple::cuda
