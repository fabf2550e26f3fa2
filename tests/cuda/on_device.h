// A device of the tests, and modules run on it beside nn's with the same numbers.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "../support/dice.h"
#include "dapple/core/random.h"
#include "dapple/cuda/memory/device.h"
#include "dapple/cuda/memory/tensor.h"
#include "dapple/cuda/modules/module.h"
#include "dapple/nn/module.h"
#include "dapple/profile/operation.h"

namespace dapple::small {

/// Made once; all memory is given back at the end of each test. It is never destroyed: what cuDNN
/// keeps of its own may be gone by then.
inline cuda::Device& device_of_tests() {
  static cuda::Device& device = *new cuda::Device(0, Bytes{std::int64_t{256} << 20});
  return device;
}

/// As they are after they have been on the device.
inline nn::Tensor rounded(const nn::Tensor& tensor, cuda::Type type) {
  return cuda::to_host(device_of_tests(), cuda::to_device(device_of_tests(), tensor, type));
}

inline nn::Tensor random_normal(nn::Shape shape, float deviation, Dice& dice) {
  nn::Tensor tensor = nn::zeros(std::move(shape));
  const RandomStream stream(static_cast<std::uint64_t>(dice.roll(0, 1'000'000'000)));
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    tensor.values[i] = deviation * stream.normal_pair(i).first;
  }
  return tensor;
}

inline nn::Tensor random_whole(nn::Shape shape, std::int64_t below, Dice& dice) {
  nn::Tensor tensor = nn::zeros(std::move(shape));
  for (float& value : tensor.values) value = static_cast<float>(dice.roll(0, below - 1));
  return tensor;
}

/// Norm of the difference over the norm of what is expected, or over one where that is less than a
/// hundredth: sums of numbers of that size may all but cancel.
inline double difference(const std::vector<float>& found, const std::vector<float>& expected) {
  if (found.size() != expected.size()) return INFINITY;
  double square = 0;
  double norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    square += std::pow(static_cast<double>(found[i]) - static_cast<double>(expected[i]), 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(square) / (std::sqrt(norm) < 0.01 ? 1 : std::sqrt(norm));
}

/// What a module computes, forward and backward.
struct Results {
  nn::Tensor output;
  nn::Tensor input_gradient;
  std::vector<nn::Tensor> weight_gradients;
};

struct Batch {
  nn::Tensor input;
  nn::Tensor targets = {};
  bool has_tokens = false;  // the input is numbers of them
};

/// `sums` are what the weights' gradients are added to.
inline Results run_on_host(const nn::Module& module, const std::vector<nn::Tensor>& parameters,
                           const Batch& batch, const nn::Tensor& slope,
                           std::vector<nn::Tensor> sums) {
  std::vector<std::span<const float>> values;
  std::vector<std::span<float>> gradients;
  for (const nn::Tensor& parameter : parameters) values.emplace_back(parameter.values);
  for (nn::Tensor& sum : sums) gradients.emplace_back(sum.values);
  nn::Stash stash;
  Results results;
  results.output = module.forward(values, batch.input, batch.targets, stash);
  results.input_gradient = module.input_gradient(values, slope, stash);
  module.weight_gradient(stash, gradients);
  results.weight_gradients = std::move(sums);
  return results;
}

inline Results run_on_device(const Operation& operation, cuda::Precision precision,
                             const std::vector<nn::Tensor>& parameters, const Batch& batch,
                             const nn::Tensor& slope, const std::vector<nn::Tensor>& sums) {
  using cuda::Type;
  cuda::Device& device = device_of_tests();
  const Type type = cuda::type_of(precision);
  std::vector<cuda::DeviceTensor> tensors;
  std::vector<cuda::View> values;
  std::vector<cuda::View> gradients;
  for (const nn::Tensor& parameter : parameters) {
    values.push_back(tensors.emplace_back(to_device(device, parameter, type)).view());
  }
  const auto first_sum = static_cast<std::ptrdiff_t>(tensors.size());
  for (const nn::Tensor& sum : sums) {
    gradients.push_back(tensors.emplace_back(to_device(device, sum, Type::Float32)).view());
  }
  const auto module = cuda::make_module(operation, precision);
  cuda::DeviceStash stash;
  cuda::DeviceTensor input = to_device(device, batch.input, batch.has_tokens ? Type::Int32 : type);
  cuda::DeviceTensor targets;
  if (!batch.targets.values.empty()) targets = to_device(device, batch.targets, Type::Int32);
  const bool is_loss = std::holds_alternative<SoftmaxCrossEntropyOperation>(operation);
  cuda::DeviceTensor slopes = to_device(device, slope, is_loss ? Type::Float32 : type);
  Results results;
  const cuda::DeviceTensor output =
      module->forward(device, values, std::move(input), targets, stash);
  results.output = to_host(device, output);
  cuda::DeviceTensor gradient = module->input_gradient(device, values, std::move(slopes), stash);
  if (gradient.memory) results.input_gradient = to_host(device, gradient);
  module->weight_gradient(device, stash, gradients);
  for (auto sum = tensors.begin() + first_sum; sum != tensors.end(); ++sum) {
    results.weight_gradients.push_back(to_host(device, *sum));
  }
  return results;
}

}  // namespace dapple::small
