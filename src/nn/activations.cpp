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

}  // namespace

std::unique_ptr<Module> make_relu() {
  return std::make_unique<Relu>();
}

std::unique_ptr<Module> make_gelu() {
  return std::make_unique<Gelu>();
}

}  // namespace dapple::nn
