#include <utility>

#include "cuda/kernels/layers/activations.h"
#include "cuda/modules/modules.h"

namespace dapple::cuda {
namespace {

using Function = void (*)(const Stream& stream, View from, View to);

class Activation : public WithoutParameters {
 public:
  Activation(Function function, Function gradient) : function_(function), gradient_(gradient) {}

  Tensor forward(Device& device, Parameters, Tensor input, const Tensor&,
                 Stash& stash) const override {
    Tensor output = make_tensor(device, input.shape, input.type);
    function_(device.compute(), input.view(), output.view());
    stash.tensors.push_back(std::move(input));
    return output;
  }

  Tensor input_gradient(Device& device, Parameters, Tensor output_gradient,
                        Stash& stash) const override {
    gradient_(device.compute(), stash.tensors[0].view(), output_gradient.view());
    stash.tensors.clear();
    return output_gradient;
  }

 private:
  Function function_;
  Function gradient_;
};

}  // namespace

std::unique_ptr<Module> make_relu() {
  return std::make_unique<Activation>(relu, relu_gradient);
}

std::unique_ptr<Module> make_gelu() {
  return std::make_unique<Activation>(gelu, gelu_gradient);
}

}  // namespace dapple::cuda
