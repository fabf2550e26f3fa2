#include <utility>

#include "cuda/kernels/layers/patches.h"
#include "cuda/kernels/layers/pooling.h"
#include "cuda/memory/libraries.h"
#include "cuda/modules/modules.h"

namespace dapple::cuda {
namespace {

class MaxPool : public DeviceModuleWithoutParameters {
 public:
  explicit MaxPool(const MaxPoolOperation& operation) : operation_(operation) {}

  /// Stashes the positions of the maxima, and the input's shape.
  DeviceTensor forward(Device& device, Parameters, DeviceTensor input, const DeviceTensor&,
                       DeviceStash& stash) const override {
    const Windows windows = windows_in(input.shape);
    const nn::Shape shape{input.shape[0], input.shape[1], windows.rows(), windows.columns()};
    DeviceTensor output = make_tensor(device, shape, input.type);
    DeviceTensor pixels = make_tensor(device, shape, Type::Int32);
    max_pool(device.compute(), windows, input.view(), output.view(), pixels.view());
    stash.tensors.push_back({input.shape, input.type, {}});
    stash.tensors.push_back(std::move(pixels));
    return output;
  }

  DeviceTensor input_gradient(Device& device, Parameters, DeviceTensor output_gradient,
                              DeviceStash& stash) const override {
    const nn::Shape& shape = stash.tensors[0].shape;
    DeviceTensor gradient = make_tensor(device, shape, output_gradient.type);
    max_pool_gradient(device.compute(), windows_in(shape), stash.tensors[1].view(),
                      output_gradient.view(), gradient.view());
    stash.tensors.clear();
    return gradient;
  }

 private:
  Windows windows_in(const nn::Shape& shape) const {
    return {shape[0] * shape[1], shape[2], shape[3], operation_.kernel, operation_.stride};
  }

  MaxPoolOperation operation_;
};

class Flatten : public DeviceModuleWithoutParameters {
 public:
  DeviceTensor forward(Device&, Parameters, DeviceTensor input, const DeviceTensor&,
                       DeviceStash& stash) const override {
    stash.tensors.push_back({input.shape, input.type, {}});
    const std::int64_t samples = input.samples();
    input.shape = {samples, input.count() / samples};
    return input;
  }

  DeviceTensor input_gradient(Device&, Parameters, DeviceTensor output_gradient,
                              DeviceStash& stash) const override {
    output_gradient.shape = std::move(stash.tensors[0].shape);
    stash.tensors.clear();
    return output_gradient;
  }
};

/// Computes a matrix product per sample, whose columns are the places of the kernel.
class Convolution : public DeviceModule {
 public:
  explicit Convolution(const ConvolutionOperation& operation)
      : operation_(operation),
        patch_(operation.in_channels * operation.kernel * operation.kernel),
        rows_(places_along(operation, operation.height)),
        columns_(places_along(operation, operation.width)) {}

  std::size_t parameter_count() const override { return 2; }

  DeviceTensor forward(Device& device, Parameters parameters, DeviceTensor input,
                       const DeviceTensor&, DeviceStash& stash) const override {
    const nn::Shape shape{input.samples(), operation_.out_channels, rows_, columns_};
    DeviceTensor output = make_tensor(device, shape, input.type);
    const DeviceTensor patches = make_tensor(device, {patch_, places()}, input.type);
    for (std::int64_t sample = 0; sample < input.samples(); ++sample) {
      to_patches(device.compute(), operation_, image_of(input, sample), patches.view());
      multiply(device, {.rows = operation_.out_channels,
                        .depth = patch_,
                        .columns = places(),
                        .left = {parameters[0]},
                        .right = {patches.view()},
                        .result = image_of(output, sample)});
    }
    add_channel_biases(device.compute(), parameters[1], places(), output.view());
    stash.tensors.push_back(std::move(input));
    return output;
  }

  DeviceTensor input_gradient(Device& device, Parameters parameters, DeviceTensor output_gradient,
                              DeviceStash& stash) const override {
    DeviceTensor gradient = make_tensor(device, stash.tensors[0].shape, output_gradient.type);
    const DeviceTensor patches = make_tensor(device, {patch_, places()}, output_gradient.type);
    for (std::int64_t sample = 0; sample < gradient.samples(); ++sample) {
      multiply(device, {.rows = patch_,
                        .depth = operation_.out_channels,
                        .columns = places(),
                        .left = {parameters[0], true},
                        .right = {image_of(output_gradient, sample)},
                        .result = patches.view()});
      from_patches(device.compute(), operation_, patches.view(), image_of(gradient, sample));
    }
    stash.tensors.push_back(std::move(output_gradient));
    return gradient;
  }

  void weight_gradient(Device& device, DeviceStash& stash, Gradients sums) const override {
    const DeviceTensor& input = stash.tensors[0];
    const DeviceTensor& gradient = stash.tensors[1];
    const DeviceTensor patches = make_tensor(device, {patch_, places()}, input.type);
    for (std::int64_t sample = 0; sample < input.samples(); ++sample) {
      to_patches(device.compute(), operation_, image_of(input, sample), patches.view());
      multiply(device, {.rows = operation_.out_channels,
                        .depth = places(),
                        .columns = patch_,
                        .left = {image_of(gradient, sample)},
                        .right = {patches.view(), true},
                        .result = sums[0],
                        .addend = sums[0]});
    }
    add_channel_sums(device.compute(), places(), gradient.view(), sums[1]);
    stash.tensors.clear();
  }

 private:
  std::int64_t places() const { return rows_ * columns_; }

  static View image_of(const DeviceTensor& tensor, std::int64_t sample) {
    const std::int64_t count = tensor.count() / tensor.samples();
    return tensor.view().part(sample * count, (sample + 1) * count);
  }

  static void multiply(Device& device, const Product& product) {
    device.libraries().products.multiply(device, product);
  }

  ConvolutionOperation operation_;
  std::int64_t patch_;
  std::int64_t rows_;
  std::int64_t columns_;
};

}  // namespace

std::unique_ptr<DeviceModule> make_convolution(const ConvolutionOperation& operation) {
  return std::make_unique<Convolution>(operation);
}

std::unique_ptr<DeviceModule> make_max_pool(const MaxPoolOperation& operation) {
  return std::make_unique<MaxPool>(operation);
}

std::unique_ptr<DeviceModule> make_flatten() {
  return std::make_unique<Flatten>();
}

}  // namespace dapple::cuda
