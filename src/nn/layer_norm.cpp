#include <utility>

#include "nn/matrix.h"
#include "nn/modules.h"

namespace dapple::nn {
namespace {

class LayerNorm : public Module {
 public:
  explicit LayerNorm(const LayerNormOperation& operation) : hidden_(operation.hidden) {
    parameters_.push_back({"scale", {hidden_}, {Initial::Kind::Constant, 1}});
    parameters_.push_back({"shift", {hidden_}, {}});
  }

  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }

  Shape output_shape(const Shape& sample) const override {
    check_last_dimension(sample, hidden_);
    return sample;
  }

  /// Normalises the input in place, and stashes it and 1 / deviation for the backward.
  Tensor forward(Parameters parameters, Tensor input, const Tensor&, Stash& stash) const override {
    const ConstVector scale = vector_of(parameters[0]);
    const ConstVector shift = vector_of(parameters[1]);
    Tensor output{input.shape, {}};
    output.values.resize(input.values.size());
    Matrix from = rows_of(input, hidden_);
    Matrix to = rows_of(output, hidden_);
    Tensor inverses = zeros({from.rows()});
    for (Eigen::Index row = 0; row < from.rows(); ++row) {
      inverses.values[static_cast<std::size_t>(row)] =
          kernels().elementwise->normalise(from.row(row).data(), hidden_, kLeastVariance);
      to.row(row).array() = from.row(row).array() * scale.array() + shift.array();
    }
    stash.tensors.push_back(std::move(input));
    stash.tensors.push_back(std::move(inverses));
    return output;
  }

  Tensor input_gradient(Parameters parameters, Tensor output_gradient,
                        Stash& stash) const override {
    const ConstMatrix normalised = rows_of(std::as_const(stash.tensors[0]), hidden_);
    Tensor gradient{output_gradient.shape, {}};
    gradient.values.resize(output_gradient.values.size());
    const ConstMatrix from = rows_of(std::as_const(output_gradient), hidden_);
    Matrix to = rows_of(gradient, hidden_);
    for (Eigen::Index row = 0; row < from.rows(); ++row) {
      kernels().elementwise->layer_norm_gradient(
          {.normalised = normalised.row(row).data(),
           .gradient = from.row(row).data(),
           .scale = parameters[0].data(),
           .inverse = stash.tensors[1].values[static_cast<std::size_t>(row)]},
          to.row(row).data(), hidden_);
    }
    stash.tensors[1] = std::move(output_gradient);
    return gradient;
  }

  void weight_gradient(Stash& stash, Gradients sums) const override {
    const ConstMatrix normalised = rows_of(std::as_const(stash.tensors[0]), hidden_);
    const ConstMatrix gradient = rows_of(std::as_const(stash.tensors[1]), hidden_);
    add_rows(gradient.cwiseProduct(normalised), vector_of(sums[0]));
    add_rows(gradient, vector_of(sums[1]));
    stash.tensors.clear();
  }

 private:
  static constexpr float kLeastVariance = 1e-5F;  // the epsilon of GPT-2

  std::int64_t hidden_;
  std::vector<ParameterSpec> parameters_;
};

}  // namespace

std::unique_ptr<Module> make_layer_norm(const LayerNormOperation& operation) {
  return std::make_unique<LayerNorm>(operation);
}

}  // namespace dapple::nn
