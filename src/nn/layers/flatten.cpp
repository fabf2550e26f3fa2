#include <utility>

#include "nn/modules.h"

namespace dapple::nn {
namespace {

class Flatten : public WithoutParameters {
 public:
  Shape output_shape(const Shape& sample) const override { return {count_of(sample)}; }

  Tensor forward(Parameters, Tensor input, const Tensor&, Stash& stash) const override {
    stash.tensors.push_back(samples_of(input, 0, 0));  // keeps the shape without any values
    const std::int64_t samples = input.samples();
    input.shape = {samples, count_of(input.shape) / samples};
    return input;
  }

  Tensor input_gradient(Parameters, Tensor output_gradient, Stash& stash) const override {
    const std::int64_t samples = output_gradient.samples();
    output_gradient.shape = std::move(stash.tensors[0].shape);
    output_gradient.shape.front() = samples;
    stash.tensors.clear();
    return output_gradient;
  }
};

}  // namespace

std::unique_ptr<Module> make_flatten() {
  return std::make_unique<Flatten>();
}

}  // namespace dapple::nn
