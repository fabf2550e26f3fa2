#include <cmath>
#include <utility>

#include "nn/matrix.h"
#include "nn/modules.h"

namespace dapple::nn {
namespace {

class Linear : public Module {
 public:
  explicit Linear(const LinearOperation& operation) : operation_(operation) {
    // Preserves the variance of the input.
    const auto spread = static_cast<float>(1 / std::sqrt(static_cast<double>(operation.inputs)));
    const Shape by_inputs{operation.inputs, operation.outputs};
    const Shape by_outputs{operation.outputs, operation.inputs};
    parameters_.push_back(
        {"weight", operation.transposed ? by_outputs : by_inputs, {Initial::Kind::Normal, spread}});
    if (operation.bias) parameters_.push_back({"bias", {operation.outputs}, {}});
  }

  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }

  Shape output_shape(const Shape& sample) const override {
    check_last_dimension(sample, operation_.inputs);
    Shape shape = sample;
    shape.back() = operation_.outputs;
    return shape;
  }

  Tensor forward(Parameters parameters, Tensor input, const Tensor&, Stash& stash) const override {
    Tensor output = biases(parameters, input.shape);
    const ConstMatrix rows = rows_of(std::as_const(input), operation_.inputs);
    const ConstMatrix weights = rows_of(parameters[0], row_length());
    Matrix result = rows_of(output, operation_.outputs);
    if (operation_.transposed) {
      add_product(plain(rows), transposed(weights), result);
    } else {
      add_product(plain(rows), plain(weights), result);
    }
    stash.tensors.push_back(std::move(input));
    return output;
  }

  Tensor input_gradient(Parameters parameters, Tensor output_gradient,
                        Stash& stash) const override {
    Tensor gradient = zeros(stash.tensors[0].shape);
    const ConstMatrix rows = rows_of(std::as_const(output_gradient), operation_.outputs);
    const ConstMatrix weights = rows_of(parameters[0], row_length());
    Matrix result = rows_of(gradient, operation_.inputs);
    if (operation_.transposed) {
      add_product(plain(rows), plain(weights), result);
    } else {
      add_product(plain(rows), transposed(weights), result);
    }
    stash.tensors.push_back(std::move(output_gradient));
    return gradient;
  }

  void weight_gradient(Stash& stash, Gradients sums) const override {
    const ConstMatrix input = rows_of(std::as_const(stash.tensors[0]), operation_.inputs);
    const ConstMatrix gradient = rows_of(std::as_const(stash.tensors[1]), operation_.outputs);
    Matrix weights = rows_of(sums[0], row_length());
    if (operation_.transposed) {
      add_product(transposed(gradient), plain(input), weights);
    } else {
      add_product(transposed(input), plain(gradient), weights);
    }
    if (operation_.bias) add_rows(gradient, vector_of(sums[1]));
    stash.tensors.clear();
  }

 private:
  std::int64_t row_length() const {
    return operation_.transposed ? operation_.inputs : operation_.outputs;
  }

  /// Returns a tensor of the output's shape that holds the bias in each row, or zeros without a
  /// bias; the product is added to it.
  Tensor biases(Parameters parameters, const Shape& input) const {
    Tensor output{input, {}};
    output.shape.back() = operation_.outputs;
    const std::int64_t count = count_of(output.shape);
    if (!operation_.bias) {
      output.values.resize(static_cast<std::size_t>(count));
      return output;
    }
    output.values.reserve(static_cast<std::size_t>(count));
    for (std::int64_t row = 0; row < count / operation_.outputs; ++row) {
      output.values.insert(output.values.end(), parameters[1].begin(), parameters[1].end());
    }
    return output;
  }

  LinearOperation operation_;
  std::vector<ParameterSpec> parameters_;
};

}  // namespace

std::unique_ptr<Module> make_linear(const LinearOperation& operation) {
  return std::make_unique<Linear>(operation);
}

}  // namespace dapple::nn
