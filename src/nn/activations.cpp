#include <utility>

#include "matrix.h"
#include "modules.h"

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

/// x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3).
/// Source: Hendrycks and Gimpel 2016, section 2.
class Gelu : public WithoutParameters {
 public:
  Tensor forward(Parameters, Tensor input, const Tensor&, Stash& stash) const override {
    Tensor output{input.shape, {}};
    output.values.resize(input.values.size());
    const ConstArray x = array_of(std::as_const(input));
    array_of(output) = 0.5F * x * (1 + (x * (kScale + kScale * kCube * x * x)).tanh());
    stash.tensors.push_back(std::move(input));
    return output;
  }

  /// With t = tanh(u): (1 + t) / 2 + x (1 - t^2) u' / 2.
  Tensor input_gradient(Parameters, Tensor output_gradient, Stash& stash) const override {
    Array gradient = array_of(output_gradient);
    const ConstArray x = array_of(std::as_const(stash.tensors[0]));
    constexpr std::int64_t kPiece = 1'024;  // a piece of tanh stays in the nearest cache
    Eigen::Array<float, Eigen::Dynamic, 1, 0, kPiece, 1> t;
    for (std::int64_t begin = 0; begin < x.size(); begin += kPiece) {
      const std::int64_t size = std::min(kPiece, x.size() - begin);
      const auto part = x.segment(begin, size);
      t = (part * (kScale + kScale * kCube * part * part)).tanh();
      gradient.segment(begin, size) *=
          0.5F * (1 + t) + 0.5F * part * (1 - t * t) * (kScale + 3 * kScale * kCube * part * part);
    }
    stash.tensors.clear();
    return output_gradient;
  }

 private:
  static constexpr float kScale = 0.7978845608F;
  static constexpr float kCube = 0.044715F;
};

}  // namespace

std::unique_ptr<Module> make_relu() {
  return std::make_unique<Relu>();
}

std::unique_ptr<Module> make_gelu() {
  return std::make_unique<Gelu>();
}

}  // namespace dapple::nn
