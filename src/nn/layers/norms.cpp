#include <utility>

#include "nn/matrix.h"
#include "nn/modules.h"

namespace dapple::nn {
namespace {

/// Normalises each row and multiplies it by a scale; a layer norm also subtracts the mean of the
/// row before and adds a shift behind.
class Norm : public Module {
 public:
  Norm(NormKind kind, std::int64_t hidden)
      : is_centred_(kind == NormKind::LayerNorm), hidden_(hidden) {
    parameters_.push_back({"scale", {hidden_}, {Initial::Kind::Constant, 1}});
    if (is_centred_) parameters_.push_back({"shift", {hidden_}, {}});
  }

  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }

  Shape output_shape(const Shape& sample) const override {
    check_last_dimension(sample, hidden_);
    return sample;
  }

  /// Normalises the input in place, and stashes it and 1 / deviation for the backward.
  Tensor forward(Parameters parameters, Tensor input, const Tensor&, Stash& stash) const override {
    const ConstVector scale = vector_of(parameters[0]);
    Tensor output{input.shape, {}};
    output.values.resize(input.values.size());
    Matrix from = rows_of(input, hidden_);
    Matrix to = rows_of(output, hidden_);
    Tensor inverses = zeros({from.rows()});
    const auto normalise =
        is_centred_ ? kernels().elementwise->normalise : kernels().elementwise->normalise_square;
    for (Eigen::Index row = 0; row < from.rows(); ++row) {
      inverses.values[static_cast<std::size_t>(row)] =
          normalise(from.row(row).data(), hidden_, kLeastSquare);
      to.row(row).array() = from.row(row).array() * scale.array();
      if (is_centred_) to.row(row) += vector_of(parameters[1]);
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
    const auto row_gradient = is_centred_ ? kernels().elementwise->layer_norm_gradient
                                          : kernels().elementwise->rms_norm_gradient;
    for (Eigen::Index row = 0; row < from.rows(); ++row) {
      row_gradient({.normalised = normalised.row(row).data(),
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
    if (is_centred_) add_rows(gradient, vector_of(sums[1]));
    stash.tensors.clear();
  }

 private:
  static constexpr float kLeastSquare = 1e-5F;  // the epsilon of GPT-2 and of Llama 2 and 3

  bool is_centred_;
  std::int64_t hidden_;
  std::vector<ParameterSpec> parameters_;
};

}  // namespace

std::unique_ptr<Module> make_layer_norm(const LayerNormOperation& operation) {
  return std::make_unique<Norm>(NormKind::LayerNorm, operation.hidden);
}

std::unique_ptr<Module> make_rms_norm(const RmsNormOperation& operation) {
  return std::make_unique<Norm>(NormKind::RmsNorm, operation.hidden);
}

}  // namespace dapple::nn
