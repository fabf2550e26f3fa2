#include "dapple/nn/model.h"

#include <fmt/format.h>

#include <utility>

#include "dapple/core/error.h"

namespace dapple::nn {
namespace {

struct InputOf {
  Shape operator()(const EmbeddingOperation& operation) const { return {operation.sequence}; }
  Shape operator()(const LinearOperation& operation) const { return {operation.inputs}; }
  Shape operator()(const LayerNormOperation& operation) const { return {operation.hidden}; }
  Shape operator()(const TransformerBlockOperation& operation) const {
    return {operation.sequence, operation.hidden};
  }
  Shape operator()(const ConvolutionOperation& operation) const {
    return {operation.in_channels, operation.height, operation.width};
  }
  Shape operator()(const SoftmaxCrossEntropyOperation& operation) const {
    return {operation.classes};
  }
  template <class Other>
  Shape operator()(const Other&) const {
    return {};
  }
};

/// Adds what is wrong with a layer of a model.
class Faults {
 public:
  void add(const std::string& layer, const std::string& key, std::string message) {
    found_.push_back({fmt::format("layer {}{}", layer, key), std::move(message)});
  }
  void throw_if_any(const std::string& source_name) {
    if (!found_.empty()) throw Error{ErrorKind::BadInput, source_name, std::move(found_)};
  }

 private:
  std::vector<Violation> found_;
};

void check_parameters(const Layer& layer, const Module& module, Faults& faults) {
  const Bytes size{parameter_count(module) * static_cast<std::int64_t>(sizeof(float))};
  if (layer.parameters == size) return;
  faults.add(layer.name, "/parameter_bytes",
             fmt::format("expected {}, 4 for each parameter of its op, got {}", size.count,
                         layer.parameters.count));
}

bool is_loss(const Operation& operation) {
  return std::holds_alternative<SoftmaxCrossEntropyOperation>(operation);
}

}  // namespace

std::int64_t parameter_count(const Module& module) {
  std::int64_t count = 0;
  for (const ParameterSpec& parameter : module.parameters()) count += count_of(parameter.shape);
  return count;
}

Shape model_input(const Operation& operation) {
  return std::visit(InputOf{}, operation);
}

std::vector<ModelLayer> make_model(const ModelProfile& profile,
                                   const std::vector<Operation>& operations,
                                   const std::string& source_name) {
  std::vector<ModelLayer> model;
  Faults faults;
  Shape shape = model_input(operations.front());
  if (shape.empty()) {
    faults.add(profile.layers.front().name, "/op",
               "expected a first layer that says what it takes, such as an embedding");
    faults.throw_if_any(source_name);
  }
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const Layer& layer = profile.layers[i];
    if (is_loss(operations[i]) != (i + 1 == operations.size())) {
      faults.add(layer.name, "/op", "expected a loss as the last layer and nowhere else");
    }
    std::unique_ptr<Module> module = make_module(operations[i]);
    check_parameters(layer, *module, faults);
    try {
      Shape output = module->output_shape(shape);
      model.push_back({layer.name, std::move(module), shape, output});
      shape = std::move(output);
    } catch (const Error& error) {
      faults.add(layer.name, "/op", error.violations().front().message);
      break;  // what comes behind it is unknown
    }
  }
  faults.throw_if_any(source_name);
  return model;
}

}  // namespace dapple::nn
