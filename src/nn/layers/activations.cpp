#include <utility>

#include "nn/matrix.h"
#include "nn/modules.h"

namespace dapple::nn {
namespace {

class Relu : public WithoutParameters {
 public:
  Tensor forward(Parameters, Tensor input, const Tensor&, Stash& stash) const override {
    Tensor output{input.shape, {}};
    output.values.resize(input.values.size());
    array_of(output) = array_of(std::as_const(input)).max(0.0F);
    stash.tensors.push_back(std::move(input));
    return output;
  }

  Tensor input_gradient(Parameters, Tensor output_gradient, Stash& stash) const override {
    Array gradient = array_of(output_gradient);
    gradient = (array_of(std::as_const(stash.tensors[0])) > 0.0F).select(gradient, 0.0F);
    stash.tensors.clear();
    return output_gradient;
  }
};

/// Computes x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3), the tanh approximation of
/// GELU. Source: Hendrycks and Gimpel 2016, section 2.
class Gelu : public WithoutParameters {
 public:
  Tensor forward(Parameters, Tensor input, const Tensor&, Stash& stash) const override {
    Tensor output{input.shape, {}};
    output.values.resize(input.values.size());
    kernels().elementwise->gelu(input.values.data(), output.values.data(),
                                static_cast<std::int64_t>(input.values.size()));
    stash.tensors.push_back(std::move(input));
    return output;
  }

  Tensor input_gradient(Parameters, Tensor output_gradient, Stash& stash) const override {
    kernels().elementwise->gelu_gradient(stash.tensors[0].values.data(),
                                         output_gradient.values.data(),
                                         static_cast<std::int64_t>(output_gradient.values.size()));
    stash.tensors.clear();
    return output_gradient;
  }
};

/// Computes silu(gate) value. Source: Shazeer 2020, "GLU Variants Improve Transformer".
class SwiGlu : public WithoutParameters {
 public:
  Shape output_shape(const Shape& sample) const override {
    if (sample.empty() || sample.back() % 2 != 0) {
      refuse_shape("an input whose last dimension is even", sample);
    }
    Shape shape = sample;
    shape.back() /= 2;
    return shape;
  }

  Tensor forward(Parameters, Tensor input, const Tensor&, Stash& stash) const override {
    Shape shape = input.shape;
    shape.back() /= 2;
    Tensor output = zeros(std::move(shape));
    Matrix to = rows_of(output, output.shape.back());
    for (Eigen::Index row = 0; row < to.rows(); ++row) {
      kernels().elementwise->swiglu(row_of(input, row, to.cols()), to.row(row).data(), to.cols());
    }
    stash.tensors.push_back(std::move(input));
    return output;
  }

  Tensor input_gradient(Parameters, Tensor output_gradient, Stash& stash) const override {
    const Tensor& input = stash.tensors[0];
    Tensor gradient = zeros(input.shape);
    const ConstMatrix slopes =
        rows_of(std::as_const(output_gradient), output_gradient.shape.back());
    const Eigen::Index count = slopes.cols();
    for (Eigen::Index row = 0; row < slopes.rows(); ++row) {
      float* first = gradient.values.data() + 2 * row * count;
      kernels().elementwise->swiglu_gradient(row_of(input, row, count), slopes.row(row).data(),
                                             {.gates = first, .values = first + count}, count);
    }
    stash.tensors.clear();
    return gradient;
  }

 private:
  static SwiGluRow row_of(const Tensor& input, Eigen::Index row, Eigen::Index count) {
    const float* first = input.values.data() + 2 * row * count;
    return {.gates = first, .values = first + count};
  }
};

}  // namespace

std::unique_ptr<Module> make_relu() {
  return std::make_unique<Relu>();
}

std::unique_ptr<Module> make_gelu() {
  return std::make_unique<Gelu>();
}

std::unique_ptr<Module> make_swiglu() {
  return std::make_unique<SwiGlu>();
}

}  // namespace dapple::nn
