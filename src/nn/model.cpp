#include "dapple/nn/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "dapple/core/error.h"
#include "nn/modules.h"

namespace dapple::nn {
namespace {

struct InputOf {
  Shape operator()(const EmbeddingOperation& operation) const { return {operation.sequence}; }
  Shape operator()(const PositionEmbeddingOperation& operation) const {
    return {operation.sequence, operation.hidden};
  }
  Shape operator()(const LinearOperation& operation) const { return {operation.inputs}; }
  Shape operator()(const LayerNormOperation& operation) const { return {operation.hidden}; }
  Shape operator()(const RmsNormOperation& operation) const { return {operation.hidden}; }
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

/// Collects the violations in the layers of a model.
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

void check_parameters(const Layer& layer, const ModelLayer& runnable, Faults& faults) {
  const Bytes size{parameter_count(runnable.own_parameters()) *
                   static_cast<std::int64_t>(sizeof(float))};
  if (layer.parameters == size) return;
  faults.add(layer.name, "/parameter_bytes",
             fmt::format("expected {}, 4 for each parameter of its op{}, got {}", size.count,
                         runnable.tied_to ? " that is its own" : "", layer.parameters.count));
}

std::string shapes_of(std::span<const ParameterSpec> parameters) {
  std::vector<std::string> shapes;
  for (const ParameterSpec& parameter : parameters) shapes.push_back(to_string(parameter.shape));
  return fmt::format("{}", fmt::join(shapes, ", "));
}

/// Ties `layer` to `owner`, an earlier layer, if the owner's parameters have the shapes of the
/// first parameters of `layer`; otherwise records a violation.
void tie(ModelLayer& layer, std::int32_t owner_number, const ModelLayer& owner, Faults& faults) {
  const std::vector<ParameterSpec>& own = layer.module->parameters();
  const std::vector<ParameterSpec>& held = owner.module->parameters();
  const bool fits = own.size() >= held.size() &&
                    std::equal(held.begin(), held.end(), own.begin(),
                               [](const auto& a, const auto& b) { return a.shape == b.shape; });
  if (fits) {
    layer.tied_to = owner_number;
    layer.tied_parameters = held.size();
    return;
  }
  faults.add(layer.name, "/tied_to",
             fmt::format("expected a layer whose parameters are shaped as this one's first, {}, "
                         "got \"{}\" with {}",
                         shapes_of(own), owner.name, shapes_of(held)));
}

bool is_loss(const Operation& operation) {
  return std::holds_alternative<SoftmaxCrossEntropyOperation>(operation);
}

}  // namespace

std::int64_t parameter_count(std::span<const ParameterSpec> parameters) {
  std::int64_t count = 0;
  for (const ParameterSpec& parameter : parameters) count += count_of(parameter.shape);
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
    ModelLayer runnable{.name = layer.name,
                        .operation = operations[i],
                        .module = make_module(operations[i]),
                        .input = shape,
                        .output = {}};
    if (is_loss(operations[i]) && !shape.empty())
      runnable.targets = {shape.begin(), shape.end() - 1};
    if (const auto owner = tied_to(profile, index_at<LayerIndex>(i))) {
      tie(runnable, owner->value, model[owner->position()], faults);
    }
    check_parameters(layer, runnable, faults);
    try {
      shape = runnable.module->output_shape(shape);
      runnable.output = shape;
      model.push_back(std::move(runnable));
    } catch (const Error& error) {
      faults.add(layer.name, "/op", error.violations().front().message);
      break;  // The shapes after this layer are unknown.
    }
  }
  faults.throw_if_any(source_name);
  return model;
}

}  // namespace dapple::nn
