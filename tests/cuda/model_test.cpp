// Layers one after another: what rounding between them adds up to.
#include <catch2/catch.hpp>
#include <string>
#include <utility>

#include "dapple/cuda/kernels/arrays.h"
#include "on_device.h"

using namespace dapple;
using small::Dice;

namespace {

/// Of GPT-2's shape, small.
std::vector<Operation> small_gpt() {
  constexpr std::int64_t kHidden = 64;
  constexpr std::int64_t kSequence = 13;
  constexpr std::int64_t kVocabulary = 83;
  std::vector<Operation> operations{EmbeddingOperation{kVocabulary, kSequence, kHidden}};
  for (int block = 0; block < 3; ++block) {
    operations.emplace_back(TransformerBlockOperation{kHidden, 4, 4 * kHidden, kSequence, true});
  }
  operations.emplace_back(LayerNormOperation{kHidden});
  operations.emplace_back(LinearOperation{kHidden, kVocabulary, false, true});
  operations.emplace_back(SoftmaxCrossEntropyOperation{kVocabulary});
  return operations;
}

/// A layer's parameters before training, and the sums of their gradients.
struct LayerValues {
  std::vector<nn::Tensor> parameters;
  std::vector<nn::Tensor> sums;
};

std::vector<LayerValues> initial_values(const std::vector<Operation>& operations) {
  std::vector<LayerValues> layers;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    LayerValues& layer = layers.emplace_back();
    const auto module = nn::make_module(operations[i]);
    for (const nn::ParameterSpec& parameter : module->parameters()) {
      nn::Tensor values = nn::zeros(parameter.shape);
      nn::initialize(parameter, std::to_string(i) + "." + parameter.name, 7, values.values);
      layer.parameters.push_back(std::move(values));
      layer.sums.push_back(nn::zeros(parameter.shape));
    }
  }
  return layers;
}

/// The losses; gradients of their mean are added to the sums.
nn::Tensor train_on_host(const std::vector<Operation>& operations, nn::Tensor tokens,
                         const nn::Tensor& targets, std::vector<LayerValues>& layers) {
  std::vector<std::unique_ptr<nn::Module>> modules;
  std::vector<nn::Stash> stashes(operations.size());
  std::vector<std::vector<std::span<const float>>> parameters(operations.size());
  nn::Tensor values = std::move(tokens);
  for (std::size_t i = 0; i < operations.size(); ++i) {
    modules.push_back(nn::make_module(operations[i]));
    for (const nn::Tensor& tensor : layers[i].parameters) {
      parameters[i].emplace_back(tensor.values);
    }
    values = modules[i]->forward(parameters[i], std::move(values), targets, stashes[i]);
  }
  const nn::Tensor losses = values;
  for (float& slope : values.values) slope = 1 / static_cast<float>(losses.samples());
  for (std::size_t i = operations.size(); i-- > 0;) {
    values = modules[i]->input_gradient(parameters[i], std::move(values), stashes[i]);
    std::vector<std::span<float>> sums;
    for (nn::Tensor& sum : layers[i].sums) sums.emplace_back(sum.values);
    modules[i]->weight_gradient(stashes[i], sums);
  }
  return losses;
}

using Modules = std::vector<std::unique_ptr<cuda::DeviceModule>>;

/// As if each layer were a stage.
Modules separate_modules(const std::vector<Operation>& operations, cuda::Precision precision) {
  Modules modules;
  for (const Operation& operation : operations) {
    modules.push_back(make_module(operation, precision));
  }
  return modules;
}

Modules neighbouring_modules(const std::vector<Operation>& operations, cuda::Precision precision) {
  return make_modules(operations, precision);
}

nn::Tensor train_on_device(const Modules& modules, const nn::Tensor& tokens,
                           const nn::Tensor& targets, std::vector<LayerValues>& layers,
                           cuda::Precision precision) {
  using cuda::Type;
  cuda::Device& device = small::device_of_tests();
  std::vector<cuda::DeviceStash> stashes(modules.size());
  std::vector<cuda::DeviceTensor> tensors;
  std::vector<std::vector<cuda::View>> parameters(modules.size());
  std::vector<std::vector<cuda::View>> sums(modules.size());
  const cuda::DeviceTensor device_targets = to_device(device, targets, Type::Int32);
  cuda::DeviceTensor values = to_device(device, tokens, Type::Int32);
  for (std::size_t i = 0; i < modules.size(); ++i) {
    for (const nn::Tensor& tensor : layers[i].parameters) {
      tensors.push_back(to_device(device, tensor, type_of(precision)));
      parameters[i].push_back(tensors.back().view());
      tensors.push_back(to_device(device, nn::zeros(tensor.shape), Type::Float32));
      sums[i].push_back(tensors.back().view());
    }
    values =
        modules[i]->forward(device, parameters[i], std::move(values), device_targets, stashes[i]);
  }
  const nn::Tensor losses = to_host(device, values);
  // As a training in half precision has it, so that small gradients are not lost.
  const float scale = precision == cuda::Precision::Float16 ? 1'024 : 1;
  nn::Tensor slopes = losses;
  for (float& slope : slopes.values) slope = scale / static_cast<float>(losses.samples());
  values = to_device(device, slopes, Type::Float32);
  for (std::size_t i = modules.size(); i-- > 0;) {
    values = modules[i]->input_gradient(device, parameters[i], std::move(values), stashes[i]);
    modules[i]->weight_gradient(device, stashes[i], sums[i]);
  }
  std::size_t tensor = 1;
  for (LayerValues& layer : layers) {
    for (nn::Tensor& sum : layer.sums) {
      cuda::scale(device.compute(), 1 / scale, tensors[tensor].view());
      sum = to_host(device, tensors[tensor]);
      tensor += 2;
    }
  }
  return losses;
}

}  // namespace

TEST_CASE("gradients of a whole model are near nn's in single precision, tensor by tensor",
          "[cuda]") {
  struct Compared {
    cuda::Precision precision;
    double tolerance;
  };
  constexpr Compared kPrecisions[] = {{cuda::Precision::Float32, 1e-4},
                                      {cuda::Precision::BFloat16, 2e-2},
                                      {cuda::Precision::Float16, 4e-3}};
  Dice dice(91);
  const std::vector<Operation> operations = small_gpt();
  const std::int64_t vocabulary = std::get<EmbeddingOperation>(operations[0]).vocabulary;
  const std::int64_t sequence = std::get<EmbeddingOperation>(operations[0]).sequence;
  const nn::Tensor tokens = small::random_whole({2, sequence}, vocabulary, dice);
  const nn::Tensor targets = small::random_whole({2, sequence}, vocabulary, dice);
  std::vector<LayerValues> expected = initial_values(operations);
  const nn::Tensor losses = train_on_host(operations, tokens, targets, expected);
  for (const auto& [precision, tolerance] : kPrecisions) {
    for (const auto& make : {separate_modules, neighbouring_modules}) {
      std::vector<LayerValues> found = initial_values(operations);
      const nn::Tensor found_losses =
          train_on_device(make(operations, precision), tokens, targets, found, precision);
      CHECK(small::difference(found_losses.values, losses.values) < tolerance);
      for (std::size_t i = 0; i < operations.size(); ++i) {
        const auto module = nn::make_module(operations[i]);
        for (std::size_t k = 0; k < found[i].sums.size(); ++k) {
          INFO("precision " << static_cast<int>(precision) << ", layer " << i << ", "
                            << module->parameters()[k].name);
          CHECK(small::difference(found[i].sums[k].values, expected[i].sums[k].values) < tolerance);
        }
      }
      CHECK(small::device_of_tests().memory_in_use().count == 0);
    }
  }
}

TEST_CASE("only between a head and its loss rows have gaps", "[cuda]") {
  constexpr std::int64_t kHidden = 24;
  constexpr std::int64_t kVocabulary = 51;
  constexpr cuda::Precision kPrecision = cuda::Precision::BFloat16;
  const std::vector<Operation> operations{LinearOperation{kHidden, kVocabulary, false, true},
                                          SoftmaxCrossEntropyOperation{kVocabulary}};
  cuda::Device& device = small::device_of_tests();
  const auto scores_by = [&](const Modules& modules) {
    const cuda::DeviceTensor weight =
        to_device(device, nn::zeros({kVocabulary, kHidden}), type_of(kPrecision));
    const cuda::View parameters[] = {weight.view()};
    cuda::DeviceTensor input = to_device(device, nn::zeros({2, 3, kHidden}), type_of(kPrecision));
    cuda::DeviceStash stash;
    return modules[0]->forward(device, parameters, std::move(input), {}, stash).shape;
  };
  CHECK(scores_by(neighbouring_modules(operations, kPrecision)) == nn::Shape{2, 3, 56});
  CHECK(scores_by(separate_modules(operations, kPrecision)) == nn::Shape{2, 3, 51});
}
