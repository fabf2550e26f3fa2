// y = x W + b over rows, with what is done to y in the same product; and its gradients.
#pragma once

#include "dapple/cuda/memory/tensor.h"
#include "dapple/profile/operation.h"

namespace dapple::cuda {

struct LinearForward {
  View input;
  View weight;
  View bias;
  View output;
  std::int64_t output_stride = 0;  // numbers from a row to the next; 0: no gaps
  View addend = {};                // shaped as the output; nothing is added if empty
  View gelu_input = {};  // likewise; if there is one, y goes here, and gelu(y) to the output
};
void apply(Device& device, const LinearOperation& operation, const LinearForward& arrays);

struct LinearBackward {
  View output_gradient;
  View weight;
  View input_gradient;
  std::int64_t output_gradient_stride = 0;
  View gelu_input = {};  // shaped as the input; if there is one, the input was GELU of it, and the
                         // gradient is that of the argument
};
void apply_backward(Device& device, const LinearOperation& operation, const LinearBackward& arrays);

struct LinearSums {
  View input;
  View output_gradient;
  View weight;                              // Float32 sums, added to
  View bias;                                // empty where there is no bias
  std::int64_t output_gradient_stride = 0;  // as above; with gaps there is no bias
};
void add_weight_gradients(Device& device, const LinearOperation& operation,
                          const LinearSums& arrays);

}  // namespace dapple::cuda
