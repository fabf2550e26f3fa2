// Linear layers y = x W + b on rows, with fused operations on y, and their gradients.
#pragma once

#include "dapple/cuda/memory/tensor.h"
#include "dapple/profile/operation.h"

namespace dapple::cuda {

struct LinearForward {
  View input;
  View weight;
  View bias;
  View output;
  // The distance between output rows, in numbers; 0: no gaps. With gaps there must be neither
  // addend, bias nor GELU, and the weight must be stored transposed.
  std::int64_t output_stride = 0;
  // Shaped as the output; empty: nothing is added.
  View addend = {};
  // Shaped as the output. If not empty, y is written here and gelu(y) to the output.
  View gelu_input = {};
};
void apply(Device& device, const LinearOperation& operation, const LinearForward& arrays);

struct LinearBackward {
  View output_gradient;
  View weight;
  View input_gradient;
  // The distance between rows of output_gradient, like LinearForward::output_stride.
  std::int64_t output_gradient_stride = 0;
  // Shaped as the input. If not empty, the input was GELU of it, and `input_gradient` receives the
  // gradient with respect to GELU's argument.
  View gelu_input = {};
};
void apply_backward(Device& device, const LinearOperation& operation, const LinearBackward& arrays);

struct LinearSums {
  View input;
  View output_gradient;
  // The Float32 sums to which the weight gradient is added.
  View weight;
  // The same for the bias; empty if there is no bias.
  View bias;
  // The distance between rows of output_gradient; with gaps there must be no bias.
  std::int64_t output_gradient_stride = 0;
};
void add_weight_gradients(Device& device, const LinearOperation& operation,
                          const LinearSums& arrays);

}  // namespace dapple::cuda
