#include "nn/linear.h"

#include <cmath>
#include <utility>

#include "nn/matrix.h"
#include "nn/modules.h"

namespace dapple::nn {
namespace {

std::int64_t row_length(const LinearOperation& operation) {
  return operation.transposed ? operation.inputs : operation.outputs;
}

/// Returns a tensor of the output's shape that holds the bias in each row, or zeros without a bias.
Tensor biases(const LinearOperation& operation, std::span<const float> bias, const Shape& input) {
  Tensor output{input, {}};
  output.shape.back() = operation.outputs;
  const std::int64_t count = count_of(output.shape);
  if (bias.empty()) {
    output.values.resize(static_cast<std::size_t>(count));
    return output;
  }
  output.values.reserve(static_cast<std::size_t>(count));
  for (std::int64_t row = 0; row < count / operation.outputs; ++row) {
    output.values.insert(output.values.end(), bias.begin(), bias.end());
  }
  return output;
}

class Linear : public Module {
 public:
  explicit Linear(const LinearOperation& operation)
      : operation_(operation), parameters_(linear_parameters(operation)) {}

  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }

  Shape output_shape(const Shape& sample) const override {
    check_last_dimension(sample, operation_.inputs);
    Shape shape = sample;
    shape.back() = operation_.outputs;
    return shape;
  }

  Tensor forward(Parameters parameters, Tensor input, const Tensor&, Stash& stash) const override {
    Tensor output =
        linear_output(operation_, parameters[0],
                      operation_.bias ? parameters[1] : std::span<const float>{}, input);
    stash.tensors.push_back(std::move(input));
    return output;
  }

  Tensor input_gradient(Parameters parameters, Tensor output_gradient,
                        Stash& stash) const override {
    Tensor gradient = linear_input_gradient(operation_, parameters[0], output_gradient);
    stash.tensors.push_back(std::move(output_gradient));
    return gradient;
  }

  void weight_gradient(Stash& stash, Gradients sums) const override {
    add_linear_weight_gradient(operation_, stash.tensors[0], stash.tensors[1], sums[0]);
    if (operation_.bias) add_bias_gradient(stash.tensors[1], sums[1]);
    stash.tensors.clear();
  }

 private:
  LinearOperation operation_;
  std::vector<ParameterSpec> parameters_;
};

}  // namespace

std::vector<ParameterSpec> linear_parameters(const LinearOperation& operation) {
  // Preserves the variance of the input.
  const auto spread = static_cast<float>(1 / std::sqrt(static_cast<double>(operation.inputs)));
  const Shape by_inputs{operation.inputs, operation.outputs};
  const Shape by_outputs{operation.outputs, operation.inputs};
  std::vector<ParameterSpec> parameters{
      {"weight", operation.transposed ? by_outputs : by_inputs, {Initial::Kind::Normal, spread}}};
  if (operation.bias) parameters.push_back({"bias", {operation.outputs}, {}});
  return parameters;
}

/// The product is added to the biases.
Tensor linear_output(const LinearOperation& operation, std::span<const float> weights,
                     std::span<const float> bias, const Tensor& input) {
  Tensor output = biases(operation, bias, input.shape);
  const ConstMatrix rows = rows_of(input, operation.inputs);
  const ConstMatrix factors = rows_of(weights, row_length(operation));
  Matrix result = rows_of(output, operation.outputs);
  if (operation.transposed) {
    add_product(plain(rows), transposed(factors), result);
  } else {
    add_product(plain(rows), plain(factors), result);
  }
  return output;
}

Tensor linear_input_gradient(const LinearOperation& operation, std::span<const float> weights,
                             const Tensor& output_gradient) {
  Shape shape = output_gradient.shape;
  shape.back() = operation.inputs;
  Tensor gradient = zeros(std::move(shape));
  const ConstMatrix rows = rows_of(output_gradient, operation.outputs);
  const ConstMatrix factors = rows_of(weights, row_length(operation));
  Matrix result = rows_of(gradient, operation.inputs);
  if (operation.transposed) {
    add_product(plain(rows), plain(factors), result);
  } else {
    add_product(plain(rows), transposed(factors), result);
  }
  return gradient;
}

void add_linear_weight_gradient(const LinearOperation& operation, const Tensor& input,
                                const Tensor& output_gradient, std::span<float> sum) {
  const ConstMatrix rows = rows_of(input, operation.inputs);
  const ConstMatrix gradient = rows_of(output_gradient, operation.outputs);
  Matrix weights = rows_of(sum, row_length(operation));
  if (operation.transposed) {
    add_product(transposed(gradient), plain(rows), weights);
  } else {
    add_product(transposed(rows), plain(gradient), weights);
  }
}

void add_bias_gradient(const Tensor& output_gradient, std::span<float> sum) {
  add_rows(rows_of(output_gradient, static_cast<std::int64_t>(sum.size())), vector_of(sum));
}

std::unique_ptr<Module> make_linear(const LinearOperation& operation) {
  return std::make_unique<Linear>(operation);
}

}  // namespace dapple::nn
