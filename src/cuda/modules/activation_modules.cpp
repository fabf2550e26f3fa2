#include <cstdint>
#include <utility>

#include "cuda/kernels/layers/activations.h"
#include "cuda/modules/modules.h"

namespace dapple::cuda {
namespace {

using Function = void (*)(const Stream& stream, std::int64_t columns, View from, View to);

class Activation : public DeviceModuleWithoutParameters {
 public:
  Activation(Function function, Function gradient) : function_(function), gradient_(gradient) {}

  DeviceTensor forward(Device& device, Parameters, DeviceTensor input, const DeviceTensor&,
                       DeviceStash& stash) const override {
    DeviceTensor output = make_tensor(device, input.shape, input.type);
    function_(device.compute(), input.shape.back(), input.view(), output.view());
    stash.tensors.push_back(std::move(input));
    return output;
  }

  DeviceTensor input_gradient(Device& device, Parameters, DeviceTensor output_gradient,
                              DeviceStash& stash) const override {
    gradient_(device.compute(), output_gradient.shape.back(), stash.tensors[0].view(),
              output_gradient.view());
    stash.tensors.clear();
    return output_gradient;
  }

 private:
  Function function_;
  Function gradient_;
};

class SwiGlu : public DeviceModuleWithoutParameters {
 public:
  DeviceTensor forward(Device& device, Parameters, DeviceTensor input, const DeviceTensor&,
                       DeviceStash& stash) const override {
    nn::Shape shape = input.shape;
    shape.back() /= 2;
    DeviceTensor output = make_tensor(device, std::move(shape), input.type);
    swiglu(device.compute(), output.shape.back(), input.view(), output.view());
    stash.tensors.push_back(std::move(input));
    return output;
  }

  DeviceTensor input_gradient(Device& device, Parameters, DeviceTensor output_gradient,
                              DeviceStash& stash) const override {
    const DeviceTensor& input = stash.tensors[0];
    DeviceTensor gradient = make_tensor(device, input.shape, input.type);
    swiglu_gradient(device.compute(), output_gradient.shape.back(), input.view(),
                    output_gradient.view(), gradient.view());
    stash.tensors.clear();
    return gradient;
  }
};

}  // namespace

std::unique_ptr<DeviceModule> make_relu() {
  return std::make_unique<Activation>(relu, relu_gradient);
}

std::unique_ptr<DeviceModule> make_gelu() {
  return std::make_unique<Activation>(gelu, gelu_gradient);
}

std::unique_ptr<DeviceModule> make_swiglu() {
  return std::make_unique<SwiGlu>();
}

}  // namespace dapple::cuda
