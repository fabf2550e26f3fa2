// The three products of a linear layer, of which whole linear layers and those that the ranks of a
// tensor-parallel group share consist.
#pragma once

#include <span>
#include <vector>

#include "dapple/nn/module.h"
#include "dapple/nn/tensor.h"

namespace dapple::nn {

/// Returns the parameters of a linear layer: the weights, and the bias if it has one.
std::vector<ParameterSpec> linear_parameters(const LinearOperation& operation);

/// Returns x W for the rows of `input`, added to the bias in each row unless that is empty.
Tensor linear_output(const LinearOperation& operation, std::span<const float> weights,
                     std::span<const float> bias, const Tensor& input);

/// Returns the gradient of the input. Requires: the output has the input's shape in all but the
/// last dimension.
Tensor linear_input_gradient(const LinearOperation& operation, std::span<const float> weights,
                             const Tensor& output_gradient);

/// Adds the gradient of the weights to `sum`.
void add_linear_weight_gradient(const LinearOperation& operation, const Tensor& input,
                                const Tensor& output_gradient, std::span<float> sum);

/// Adds the gradient of the bias to `sum`.
void add_bias_gradient(const Tensor& output_gradient, std::span<float> sum);

}  // namespace dapple::nn
